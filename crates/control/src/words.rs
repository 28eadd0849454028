//! Errors in the words of the shell: those of the library name what a program would call.

use ebbtide::Error;
use ebbtide::shared::utc;

/// The message of an error for somebody who types commands.
#[must_use]
pub fn in_words(error: &Error) -> String {
    match error {
        Error::ClockBehind { wall, mark } => format!(
            "the clock of this machine says {}, but this database has relied on {}: correct the clock",
            utc(*wall),
            utc(*mark)
        ),
        Error::ClockUnsettled { wall, settled } => format!(
            "the clock of this machine has leapt from {} to {}: correct it, or wait until the database believes it",
            utc(*settled),
            utc(*wall)
        ),
        Error::TimeIsGiven { what } => format!(
            "the time of this database is given by its program, not by a clock, where this is refused: {what}"
        ),
        Error::TimeIsNotGiven => "the time of this database is that of a clock".to_owned(),
        Error::MissingFeature { feature, what } => {
            format!("{what} needs this command to be built with `--features {feature}`")
        }
        Error::ReadOnly => "the database is open to be read only".to_owned(),
        Error::Closed => {
            "the process that has the database open is closing it: try again".to_owned()
        }
        Error::Poisoned { cause } => format!(
            "no further writes after an earlier failure ({}): the process that has it open must open it again",
            in_words(cause)
        ),
        Error::ChangesGone { since, from } => format!(
            "changes are known since version {from}, and not since version {since}: drop the copy, and make it anew, without --since"
        ),
        Error::ExpirationsGone { container, .. } => {
            format!("some of what expired in {container:?} is known no more")
        }
        Error::Differs { container, .. } => {
            format!("container {container:?} is there, with other settings")
        }
        Error::Conflict { container, .. } => {
            format!("an item of {container:?} was changed by somebody else meanwhile: try again")
        }
        Error::ContainerDropped { name } => format!("container {name:?} was dropped meanwhile"),
        Error::Corruption { .. } => {
            let said = error.to_string();
            said.replace(
                "`ebbtide repair` (in a program: ebbtide::repair)",
                "`ebbtide repair`",
            )
        }
        _ => error.to_string(),
    }
}

/// `; is it "sessions"?`, if one of the names is much like this one.
#[must_use]
pub fn likely<N: AsRef<str>>(name: &str, names: impl IntoIterator<Item = N>) -> String {
    /// Below, names have little in common.
    const LIKE: f64 = 0.8;
    let like = names.into_iter().map(|known| {
        let likeness = strsim::jaro_winkler(name, known.as_ref());
        (likeness, known)
    });
    let best = like.max_by(|a, b| a.0.total_cmp(&b.0));
    match best {
        Some((likeness, known)) if likeness > LIKE => format!("; is it {:?}?", known.as_ref()),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use super::*;

    /// Of every error that the library can give, but of `Decode`, which no command meets.
    #[test]
    fn no_error_names_a_call() {
        let (moment, name) = (SystemTime::UNIX_EPOCH, || "c".to_owned());
        let damaged = Error::Corruption {
            path: "db/wal/1".into(),
            offset: 7,
            what: "no checksum".to_owned(),
        };
        let errors = [
            damaged.clone(),
            Error::UnsupportedFormat {
                path: "db".into(),
                found: 1,
                supported: 2,
            },
            Error::MissingFeature {
                feature: "zstd",
                what: name(),
            },
            Error::Locked { path: "db".into() },
            Error::NotFound { path: "db".into() },
            Error::ForeignFolder { path: "db".into() },
            Error::ClockBehind {
                wall: moment,
                mark: moment,
            },
            Error::ClockUnsettled {
                wall: moment,
                settled: moment,
            },
            Error::TimeIsGiven { what: "a ttl" },
            Error::TimeIsNotGiven,
            Error::AheadOfTime {
                moment,
                now: moment,
            },
            Error::Conflict {
                container: name(),
                key: vec![],
            },
            Error::TooManyCommands { container: name() },
            Error::ChangesGone { since: 1, from: 2 },
            Error::ExpirationsGone {
                container: name(),
                known_from: moment,
            },
            Error::QuotaFull {
                container: None,
                limit: 1,
                live: 2,
                frees_at: None,
            },
            Error::Differs {
                container: name(),
                found: name(),
                asked: name(),
            },
            Error::ContainerDropped { name: name() },
            Error::OutOfMemory { bytes: 1 },
            Error::MemoryCorruption { what: name() },
            Error::Poisoned {
                cause: Arc::new(damaged),
            },
            Error::ReadOnly,
            Error::Closed,
            Error::Stalled,
        ];
        for error in errors {
            let said = in_words(&error);
            let calls = ["::", "()", "(true)", "or_", "the crate"];
            assert!(!calls.iter().any(|call| said.contains(call)), "{said}");
            assert!(said.len() > 10, "{said}");
        }
    }

    #[test]
    fn a_name_that_is_nearly_typed_is_found() {
        let names = ["sessions", "carts", "audit"];
        assert_eq!(likely("sesions", names), "; is it \"sessions\"?");
        assert_eq!(likely("cart", names), "; is it \"carts\"?");
        assert_eq!(likely("users", names), "");
        assert_eq!(likely("users", [""; 0]), "");
    }
}
