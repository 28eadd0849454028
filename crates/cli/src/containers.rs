//! Commands on containers: their names, their default ttl and their quota.

use std::io::{Write, stdout};
use std::time::Duration;

use ebbtide::{Container, DefaultTtl, Preview, Quota, WhenFull};
use ebbtide_cli::given;
use ebbtide_control::{Answer, Change, Request};
use serde_json::json;

use crate::arguments::{ContainerArgs, Home, Writing};
use crate::ending::Ends;
use crate::expire::expire_question;
use crate::failure::{self, Failure, Outcome};
use crate::{show, store};

pub fn containers(home: &Home, json: bool) -> Outcome {
    let db = store::read(home)?;
    let mut out = stdout().lock();
    for name in db.containers() {
        match json {
            true => writeln!(out, "{}", json!({ "container": name }))?,
            false => writeln!(out, "{name}")?,
        }
    }
    Ok(())
}

/// Asks first where the default ends items at once.
pub fn set_ttl(place: &ContainerArgs, default: &str, yes: bool, json: bool) -> Outcome {
    let ends = Ends {
        place,
        question: expire_question,
        done: "expired",
        change: Change::DefaultTtl(given::default_ttl(default)?),
    };
    let writer = store::create(&place.home, Writing { sync: false })?;
    if ends.preview(&writer)?.items > 0 {
        ends.ask(&writer, yes)?;
    }
    let ended = ends.make(writer)?;
    match ended.items > 0 || json {
        true => ends.say(&ended, json),
        false => Ok(()),
    }
}

pub fn ttl(place: &ContainerArgs, json: bool) -> Outcome {
    let db = store::read(&place.home)?;
    let default = store::container(&db, &place.container)?.default_ttl();
    let mut out = stdout().lock();
    if json {
        let line =
            json!({ "container": place.container, "default_ttl": show::default_ttl_json(default) });
        writeln!(out, "{line}")?;
    } else {
        writeln!(out, "{}", show::default_ttl(default))?;
    }
    Ok(())
}

pub fn quota(place: &ContainerArgs, json: bool) -> Outcome {
    let db = store::read(&place.home)?;
    let quota = store::container(&db, &place.container)?.quota();
    let mut out = stdout().lock();
    match json {
        true => {
            let line =
                json!({ "container": place.container, "quota": quota.map(show::quota_json) });
            writeln!(out, "{line}")?;
        }
        false => writeln!(out, "{}", show::quota(quota))?,
    }
    Ok(())
}

pub fn set_quota(
    place: &ContainerArgs,
    limit: &str,
    when_full: Option<&str>,
    json: bool,
) -> Outcome {
    let when_full = match when_full {
        None | Some("refuse") => WhenFull::Refuse,
        Some("expire-soonest") => WhenFull::ExpireSoonest,
        Some(other) => {
            let why = format!("--when-full {other:?} is not allowed: refuse or expire-soonest");
            return Err(Failure::Refused(why));
        }
    };
    let bytes = given::size(limit).ok();
    let quota = match (limit, bytes.filter(|bytes| (1..=1 << 62).contains(bytes))) {
        ("none", _) => None,
        (_, Some(max_live_bytes)) => Some(Quota {
            max_live_bytes,
            when_full,
        }),
        _ => {
            let allowed = "bytes from 1 to 2^62, as in 7000000, 10MB or 64MiB, or none";
            let why = format!("quota {limit:?} is not allowed: {allowed}");
            return Err(Failure::Refused(why));
        }
    };
    let writer = store::write_once(&place.home)?;
    let set = writer.ask(&Request::change(&place.container, Change::Quota(quota)))?;
    writer.close()?;
    let Answer::Quota { live_bytes } = set else {
        return Ok(());
    };
    if json {
        let line = json!({
            "container": place.container,
            "quota": quota.map(show::quota_json),
            "live_bytes_estimate": live_bytes,
        });
        writeln!(stdout().lock(), "{line}")?;
    } else if let Some(quota) = quota.filter(|quota| live_bytes > quota.max_live_bytes) {
        let then = match quota.when_full {
            WhenFull::ExpireSoonest => "the next write expires what ends soonest",
            _ => "what makes it larger is refused until some has ended",
        };
        failure::note(&format_args!(
            "{:?} holds about {} already: {then}",
            place.container,
            show::bytes(live_bytes)
        ));
    }
    Ok(())
}

/// Around the default that is asked about: a quarter of it to four times as long.
const BESIDE: [f64; 5] = [0.25, 0.5, 1.0, 2.0, 4.0];
/// The width of a bar that stands for all that is live.
const COLUMNS: u64 = 40;

/// Counts the items that a default would end, and leaves the default as it is.
pub fn preview(place: &ContainerArgs, default: &str, json: bool) -> Outcome {
    let asked = given::default_ttl(default)?;
    let db = store::read(&place.home)?;
    let container = store::container(&db, &place.container)?;
    let mut out = stdout().lock();
    if json {
        let beside = beside(asked).into_iter();
        let others: Vec<_> = beside.map(|default| line(&container, default)).collect();
        let mut all = line(&container, asked);
        all["container"] = place.container.as_str().into();
        all["beside"] = others.into();
        writeln!(out, "{all}")?;
        return Ok(());
    }
    let live = container.stats().live_bytes;
    let Preview { items, bytes, .. } = container.preview_default_ttl(asked);
    let items = show::counted(show::about(items), "item");
    let bytes = show::bytes(bytes);
    writeln!(
        out,
        "would expire about {items}, {bytes} of {}",
        show::bytes(live)
    )?;
    let beside = beside(asked);
    let width = beside.iter().map(|default| default.to_string().len()).max();
    let width = width.unwrap_or(0);
    for default in beside {
        let gone = container.preview_default_ttl(default).bytes.min(live);
        let bar = "█".repeat((gone * COLUMNS).div_ceil(live.max(1)) as usize);
        let share = 100.0 * gone as f64 / live.max(1) as f64;
        let this = if default == asked { "  <" } else { "" };
        let default = default.to_string();
        let line = format!("{default:>width$}  {share:>3.0} %  {bar}{this}");
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn line(container: &Container, default: DefaultTtl) -> serde_json::Value {
    let Preview { items, bytes, .. } = container.preview_default_ttl(default);
    json!({
        "default_ttl": show::default_ttl_json(default),
        "items_estimate": items,
        "bytes_estimate": bytes,
    })
}

/// The defaults around this one, whole seconds; none where it has no length.
fn beside(default: DefaultTtl) -> Vec<DefaultTtl> {
    let DefaultTtl::After(time) = default else {
        return vec![];
    };
    let times = BESIDE.map(|factor| (time.as_secs_f64() * factor).round());
    let mut times: Vec<u64> = times.iter().map(|seconds| *seconds as u64).collect();
    times.retain(|seconds| (1..=i32::MAX as u64).contains(seconds));
    times.dedup();
    let default = |seconds| DefaultTtl::After(Duration::from_secs(seconds));
    times.into_iter().map(default).collect()
}
