use super::*;
use crate::catalog::edit::{RunId, TableRecord};
use crate::data::batch::KeyRange;
use crate::expiry::DefaultMillis;
use crate::values::Compression;

fn container(id: u32, name: &str) -> ContainerRecord {
    ContainerRecord {
        id: ContainerId(id),
        name: name.to_owned(),
        created: Seq(1),
        compression: Compression::None,
        settings: Settings::default(),
        settings_seq: Seq(0),
        quota: None,
        flushed: Seq(0),
        runs: vec![],
        range_deletes: vec![],
        changes_from: Seq(0),
        keep_expired: 0,
        ends_dropped: Timestamp(0),
    }
}

fn edit(number: u64, changes: Vec<Change>) -> Edit {
    Edit {
        number,
        time_high_water: Timestamp(number),
        changes,
    }
}

#[test]
fn a_catalogue_is_what_its_edits_add_up_to_and_says_it_again() {
    let id = ContainerId(3);
    let run = RunRecord {
        id: RunId(8),
        end: Some(Timestamp(99)),
        end_assumes: DefaultMillis::Millis(5),
        applied: Seq(0),
        tables: vec![TableRecord {
            id: TableId(4),
            len: 10,
            crc: 7,
        }],
    };
    let range = RangeDelete {
        range: KeyRange::of_bounds(b"a", b""),
        seq: Seq(30),
    };
    let branch = Branch {
        id: u64::MAX,
        from: Seq(20),
        told: 2,
    };
    let mut catalogue = Catalogue::default();
    catalogue
        .apply(&edit(1, vec![Change::CreateContainer(container(3, "a"))]))
        .unwrap();
    catalogue
        .apply(&edit(
            2,
            vec![
                Change::AddRun(id, run.clone()),
                Change::Flushed(id, Seq(20)),
                Change::AddRangeDelete(id, range),
                Change::Log(Some(LogStart {
                    chain: u64::MAX,
                    first: 5,
                    ring: Some(2),
                    prefix: None,
                })),
                Change::LogSynced(Position(900)),
                Change::Reserved(Seq(77)),
                Change::Database(u64::MAX),
                Change::Branch(branch),
            ],
        ))
        .unwrap();
    assert_eq!(
        (
            catalogue.next_table,
            catalogue.next_run,
            catalogue.next_container
        ),
        (5, 9, 4)
    );
    assert_eq!((catalogue.used, catalogue.reserved), (Seq(30), Seq(77)));
    assert_eq!(catalogue.database, u64::MAX);
    assert_eq!(catalogue.branches, [branch]);
    let json = serde_json::to_string(&catalogue.to_edit()).unwrap();
    let mut again = Catalogue::default();
    again.apply(&serde_json::from_str(&json).unwrap()).unwrap();
    assert_eq!(again, catalogue);
    catalogue
        .apply(&edit(3, vec![Change::RemoveRun(id, run.id)]))
        .unwrap();
    assert!(catalogue.tables().is_empty());
}

#[test]
fn edits_that_do_not_fit_are_refused() {
    let mut catalogue = Catalogue::default();
    catalogue
        .apply(&edit(1, vec![Change::CreateContainer(container(3, "a"))]))
        .unwrap();
    for bad in [
        edit(1, vec![]),
        edit(3, vec![]),
        edit(2, vec![Change::DropContainer(ContainerId(9))]),
        edit(2, vec![Change::CreateContainer(container(4, "a"))]),
        edit(2, vec![Change::RemoveRun(ContainerId(3), RunId(1))]),
    ] {
        assert!(catalogue.step(&bad).is_err(), "{bad:?}");
        assert!(catalogue.clone().apply(&bad).is_err(), "{bad:?}");
    }
}

/// Goal: a step has the same result as applying the edit, although it uses only a part. Method: containers are created,
/// changed, renamed by reuse of names and dropped, several of these in one edit.
#[test]
fn a_step_makes_of_a_part_what_an_edit_makes_of_the_whole() {
    let create = |id, name| Change::CreateContainer(container(id, name));
    let range = |seq| RangeDelete {
        range: KeyRange::of_bounds(b"a", b""),
        seq: Seq(seq),
    };
    let (one, two) = (ContainerId(1), ContainerId(2));
    let edits = [
        vec![create(1, "a"), create(2, "b")],
        vec![
            Change::Flushed(two, Seq(9)),
            Change::Log(Some(LogStart {
                chain: 7,
                first: 4,
                ring: None,
                prefix: None,
            })),
        ],
        vec![Change::DropContainer(one), create(3, "a")],
        vec![
            Change::AddRangeDelete(two, range(11)),
            Change::LogSynced(Position(900)),
        ],
        vec![create(4, "c"), Change::DropContainer(ContainerId(4))],
        vec![
            Change::RemoveRangeDelete(two, Seq(11)),
            Change::used(Seq(20)),
        ],
        vec![Change::DropContainer(two), create(5, "b"), create(6, "d")],
        vec![Change::DropContainer(ContainerId(6))],
    ];
    let (mut stepped, mut applied) = (Catalogue::default(), Catalogue::default());
    for (number, changes) in (1..).zip(edits) {
        let edit = edit(number, changes);
        applied.apply(&edit).unwrap();
        let step = stepped.step(&edit).unwrap();
        stepped.take(step);
        assert_eq!(stepped, applied, "{edit:?}");
    }
    let names: Vec<&str> = stepped.names.keys().map(String::as_str).collect();
    assert_eq!(names, ["a", "b"]);
    for bad in [create(9, "a"), create(3, "z")] {
        assert!(stepped.step(&edit(9, vec![bad])).is_err());
    }
}

#[test]
fn how_far_a_log_was_synced_is_known_of_the_one_that_is_named() {
    let start = |chain, first| LogStart {
        chain,
        first,
        ring: None,
        prefix: None,
    };
    let (mut catalogue, mut number) = (Catalogue::default(), 0);
    let mut apply = |catalogue: &mut Catalogue, changes| {
        number += 1;
        catalogue.apply(&edit(number, changes)).unwrap();
        catalogue.log_synced.0
    };
    let synced = |identity, position| SyncedNote { identity, position };
    let log = |chain, first| Change::Log(Some(start(chain, first)));
    let known = Change::LogSynced(Position(900));
    assert_eq!(catalogue.news_of(synced(7, 900)), None, "no log is named");
    assert_eq!(apply(&mut catalogue, vec![log(7, 4)]), 0);
    assert_eq!(catalogue.news_of(synced(8, 900)), None, "another log's");
    assert_eq!(catalogue.news_of(synced(7, 900)), Some(known.clone()));
    assert_eq!(apply(&mut catalogue, vec![known.clone()]), 900);
    assert_eq!(catalogue.news_of(synced(7, 900)), None, "it is known");
    // A later segment becomes the first that is needed.
    assert_eq!(apply(&mut catalogue, vec![log(7, 5)]), 900);
    let less = Change::LogSynced(Position(800));
    assert_eq!(apply(&mut catalogue, vec![less]), 900);
    assert_eq!(apply(&mut catalogue, vec![known, log(8, 6)]), 0);
    assert_eq!(apply(&mut catalogue, vec![Change::Log(None)]), 0);
}
