//! The store of backups: any bytes as a manifest, and any ledger told to a copy.

use std::sync::OnceLock;
use std::time::{Duration, UNIX_EPOCH};

use ebbtide::Ledger;
use ebbtide::internals::Sim;
use ebbtide_backup::internals::{read_manifest, seal};

use super::input::Input;
use super::manifest::{options, template, use_all};

/// Bytes of a manifest, or its JSON.
pub fn backup(data: &[u8]) {
    let mut input = Input::new(data);
    let bytes = match input.flag() {
        false => input.rest().to_vec(),
        true => seal(input.rest()),
    };
    if let Some(ledger) = read_manifest(&bytes) {
        ask(&ledger, &ledger);
    }
}

/// A ledger as JSON, told to a copy that has tables, range deletes and settings. The copy opens and can be used, or it
/// says why not.
pub fn ledger(data: &[u8]) {
    let mut input = Input::new(data);
    let moment = UNIX_EPOCH + Duration::from_millis(input.any_size());
    let Ok(ledger) = serde_json::from_slice::<Ledger>(input.rest()) else {
        return;
    };
    let json = serde_json::to_vec(&ledger).expect("a ledger is JSON");
    assert_eq!(
        serde_json::from_slice::<Ledger>(&json).ok().as_ref(),
        Some(&ledger)
    );
    let (copy, own) = copy_at_rest();
    ask(own, &ledger);
    ask(&ledger, own);
    let sim = copy.kill();
    let options = options(&sim);
    let _ = options.drop_ended("/db", &ledger);
    let _ = options.apply_ledger("/db", &ledger);
    let _ = options.drop_ending_before("/db", own, moment);
    let _ = options.branch("/db", own, ledger.version());
    match options.open("/db") {
        Ok(db) => use_all(&db),
        Err(error) => drop(error.to_string()),
    }
}

fn ask(ledger: &Ledger, later: &Ledger) {
    assert!(ledger.precedes(ledger));
    let _ = ledger.precedes(later);
    let _ = ledger.told().count();
    let ended = ledger.ended_by(later);
    let by_then = ledger.ending_before(later.mark() + Duration::from_millis(1));
    assert!(ended.iter().all(|file| by_then.contains(file)));
}

/// A copy that was brought to rest, and its ledger.
fn copy_at_rest() -> &'static (Sim, Ledger) {
    static COPY: OnceLock<(Sim, Ledger)> = OnceLock::new();
    COPY.get_or_init(|| {
        let sim = template().kill();
        let ledger = options(&sim).ledger("/db").expect("it is whole");
        (sim, ledger)
    })
}
