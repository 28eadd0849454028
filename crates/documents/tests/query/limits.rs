//! Pages, what is held until the end, and going on.

use ebbtide_documents::query::{Flow, Progress, QueryLimits};

use crate::{Known, bound, now, push_all};

fn numbered(count: usize) -> Vec<String> {
    (0..count)
        .map(|at| {
            format!(
                r#"{{"id":"{at:05}","half":{},"text":"{}"}}"#,
                at / 2,
                "x".repeat(100)
            )
        })
        .collect()
}

#[test]
fn a_page_is_full_by_rows_or_by_bytes() {
    let documents = numbered(50);
    let query = bound("SELECT VALUE c.id FROM c WHERE c.half >= 5", &[]).unwrap();
    for limits in [
        QueryLimits {
            rows: 7,
            ..QueryLimits::default()
        },
        QueryLimits {
            bytes: 7 * 7,
            ..QueryLimits::default()
        },
    ] {
        let mut execution = query.start(&limits, now());
        let flow = documents
            .iter()
            .map(|document| execution.push(document.as_bytes(), &Known).unwrap());
        let taken = flow.take_while(|flow| *flow == Flow::Continue).count();
        assert_eq!(taken, 16);
        assert!(!execution.is_done());
        assert_eq!(execution.take_rows().len(), 7);
        assert_eq!(execution.take_rows().len(), 0);
    }
}

/// Pages of a query that streams, put together, are the query; each goes on behind the last document of the one before.
#[test]
fn going_on() {
    let documents = numbered(60);
    for text in [
        "SELECT VALUE c.id FROM c",
        "SELECT VALUE c.id FROM c WHERE c.half > 3 OFFSET 9 LIMIT 20",
        "SELECT TOP 11 VALUE c.id FROM c",
        "SELECT VALUE c.id FROM c OFFSET 100 LIMIT 1",
    ] {
        let query = bound(text, &[]).unwrap();
        assert!(query.is_streaming());
        let mut whole = query.start(&QueryLimits::default(), now());
        push_all(&mut whole, &documents).unwrap();
        let whole = whole.finish().unwrap();
        let limits = QueryLimits {
            rows: 4,
            ..QueryLimits::default()
        };
        let (mut rows, mut progress, mut rest) = (vec![], Progress::default(), &documents[..]);
        loop {
            let mut page = query.resume(&limits, now(), progress);
            let mut flow = Flow::Continue;
            while let (Flow::Continue, [next, behind @ ..]) = (flow, rest) {
                flow = page.push(next.as_bytes(), &Known).unwrap();
                rest = behind;
            }
            let done = page.is_done() || flow == Flow::Continue;
            progress = page.progress();
            let more = page.finish().unwrap();
            assert!(more.len() <= 4);
            rows.extend(more);
            if done {
                break;
            }
        }
        assert_eq!(rows, whole, "{text}");
    }
    for text in [
        "SELECT DISTINCT VALUE c.a FROM c",
        "SELECT * FROM c ORDER BY c.a",
        "SELECT VALUE COUNT(1) FROM c",
        "SELECT VALUE c.a FROM c GROUP BY c.a",
        "SELECT 1",
    ] {
        assert!(!bound(text, &[]).unwrap().is_streaming(), "{text}");
    }
}

/// A limit that is reached reads no further document.
#[test]
fn enough() {
    let documents = numbered(10);
    for (text, pushed) in [
        ("SELECT TOP 3 * FROM c", 3),
        ("SELECT * FROM c OFFSET 2 LIMIT 3", 5),
        ("SELECT TOP 0 * FROM c", 1),
        ("SELECT DISTINCT TOP 2 c.half FROM c", 3),
        ("SELECT TOP 3 * FROM c ORDER BY c.id", 10),
        ("SELECT VALUE COUNT(1) FROM c", 10),
    ] {
        let mut execution = bound(text, &[])
            .unwrap()
            .start(&QueryLimits::default(), now());
        let mut count = 0;
        for document in &documents {
            count += 1;
            if execution.push(document.as_bytes(), &Known).unwrap() == Flow::Enough {
                assert!(execution.is_done());
                break;
            }
        }
        assert_eq!(count, pushed, "{text}");
    }
}

#[test]
fn what_is_held_is_bounded() {
    let documents = numbered(2_000);
    let limits = QueryLimits {
        held_bytes: 100_000,
        ..QueryLimits::default()
    };
    for text in [
        "SELECT * FROM c ORDER BY c.id",
        "SELECT DISTINCT * FROM c",
        "SELECT DISTINCT * FROM c ORDER BY c.id",
        "SELECT c.id, COUNT(1) AS n FROM c GROUP BY c.id",
    ] {
        let mut execution = bound(text, &[]).unwrap().start(&limits, now());
        let error = push_all(&mut execution, &documents).unwrap_err();
        let sentence = "ORDER BY, DISTINCT or GROUP BY would hold more than 100000 bytes";
        assert_eq!(
            (error.status(), error.to_string().as_str()),
            (400, sentence),
            "{text}"
        );
    }
    // These hold little, however many come.
    for (text, count) in [
        ("SELECT TOP 10 * FROM c ORDER BY c.id DESC", 10),
        ("SELECT * FROM c ORDER BY c.id OFFSET 5 LIMIT 5", 5),
        ("SELECT DISTINCT c.gone FROM c ORDER BY c.id DESC", 1),
        (
            "SELECT MAX(c.id) AS m, COUNT(1) AS n FROM c GROUP BY c.gone",
            1,
        ),
    ] {
        let mut execution = bound(text, &[]).unwrap().start(&limits, now());
        push_all(&mut execution, &documents).unwrap();
        assert_eq!(execution.finish().unwrap().len(), count, "{text}");
    }
}

/// Documents that come in the order of ORDER BY need not be held, and a limit ends the scan.
#[test]
fn in_order() {
    let documents = numbered(50);
    let query = bound(
        "SELECT VALUE c.id FROM c ORDER BY c.half OFFSET 1 LIMIT 3",
        &[],
    )
    .unwrap();
    assert_eq!(query.order().unwrap()[0].path.as_deref(), Some("/half"));
    let mut execution = query.start_in_order(&QueryLimits::default(), now());
    let pushed = documents.iter().take_while(|document| {
        execution.push(document.as_bytes(), &Known).unwrap() == Flow::Continue
    });
    assert_eq!(pushed.count(), 3);
    assert_eq!(
        execution.finish().unwrap(),
        ["\"00001\"", "\"00002\"", "\"00003\""]
    );
}

#[test]
fn what_a_plan_tells() {
    let info = |text: &str| bound(text, &[]).unwrap().info().clone();
    let one = info("Select top 10 value count(c.id) from c");
    assert_eq!(
        (one.top, one.value, one.one_aggregate, one.aggregates),
        (Some(10), true, true, vec!["Count"])
    );
    let one = info("Select * from c order by c._ts, c.a desc offset 5 limit 10");
    assert_eq!(
        (one.order, one.window, one.top),
        (vec![false, true], Some((5, 10)), None)
    );
    let one = info("Select distinct c.a, avg(c.b) as m from c group by c.a");
    assert!(one.distinct && one.grouped && !one.value && !one.one_aggregate);
    assert_eq!(one.aggregates, ["Average"]);
}
