//! No test waits for a feature: crates/tests has none, so that such a test would be left out without a word.

use std::fs;

use super::{files, report};

#[test]
fn no_test_waits_for_a_feature() {
    let root = testkit::repository();
    let (mut paths, mut faults) = (vec![], vec![]);
    files(&root.join("tests"), &mut paths);
    let (of_the_engine, own) = (root.join("tests/face"), root.join("tests/sources"));
    paths.retain(|path| !path.starts_with(&of_the_engine) && !path.starts_with(&own));
    assert!(paths.len() > 50, "only {} files", paths.len());
    for path in paths {
        for (number, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            if line.contains("cfg") && line.contains("feature = ") {
                faults.push(format!(
                    "{}:{}: {}",
                    path.display(),
                    number + 1,
                    line.trim()
                ));
            }
        }
    }
    report(faults);
}
