//! `ebbtide export --parquet`: an analytical copy, which a build without the feature `parquet` does not make.

use std::path::Path;

use crate::arguments::Export;
use crate::failure::Outcome;

#[cfg(not(feature = "parquet"))]
pub fn export(_: &Export, _: &Path, _: bool) -> Outcome {
    Err(crate::failure::Failure::Refused(
        "this build writes no Parquet files: `cargo install ebbtide-cli --features parquet` makes one that does"
            .to_owned(),
    ))
}

#[cfg(feature = "parquet")]
pub fn export(export: &Export, out: &Path, json: bool) -> Outcome {
    made::export(export, out, json)
}

#[cfg(feature = "parquet")]
mod made {
    use std::io::{Write, stdout};

    use ebbtide_cli::given;
    use ebbtide_cli::lake::{self, Done, Partition, Settings};
    use serde_json::json;

    use super::*;
    use crate::failure::{self, Failure};
    use crate::{show, store};

    pub fn export(export: &Export, out: &Path, json: bool) -> Outcome {
        let settings = settings(export, out)?;
        let home = &export.place.home;
        let db = store::copy(home)?.into_database(home)?;
        let container = store::container(&db, &export.place.container)?;
        let done = lake::export(&db, &container, &settings, &|| Ok(()));
        let done = done.map_err(|error| Failure::Refused(error.to_string()))?;
        db.close()?;
        match json {
            true => writeln!(stdout().lock(), "{}", of(&done))?,
            false => failure::note(&said(&done)),
        }
        Ok(())
    }

    fn settings(export: &Export, out: &Path) -> Outcome<Settings> {
        let refused = |what: &str, given: &str, allowed: &str| {
            Failure::Refused(format!("{what} {given} is not allowed: {allowed}"))
        };
        let retention = export.retention.as_deref().map(|given| {
            given::default_ttl(given).map_err(|_| {
                let allowed = "off, -1 (for good), or a lifetime of whole seconds from 1 to 2147483647: 90, 30d";
                refused("retention", given, allowed)
            })
        });
        let partition = export.partition.as_deref().map(|given| match given {
            "day" => Ok(Partition::Day),
            "hour" => Ok(Partition::Hour),
            _ => Err(refused("partition", given, "day or hour")),
        });
        Ok(Settings {
            out: out.to_owned(),
            retention: retention.transpose()?,
            partition: partition.transpose()?,
            utf8_keys: export.utf8_keys,
            utf8_values: export.utf8_values,
        })
    }

    fn of(done: &Done) -> serde_json::Value {
        json!({
            "rows": done.rows,
            "files": done.files,
            "removed_files": done.removed,
            "compared": done.compared,
            "version": done.version,
        })
    }

    fn said(done: &Done) -> String {
        let mut said = format!(
            "{} in {}, up to version {}",
            show::counted(done.rows, "row"),
            show::counted(done.files, "file"),
            done.version
        );
        if done.removed > 0 {
            let removed = show::counted(done.removed, "file");
            said += &format!("; {removed} past the retention removed");
        }
        if done.compared {
            said += "; all was compared";
        }
        said
    }
}
