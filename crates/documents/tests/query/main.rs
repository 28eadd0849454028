//! Goal: queries answer as Cosmos DB's NoSQL API does, whatever is asked and stored.
//!
//! Method: a table of queries with their rows (cases.rs) and of texts that are refused (refused.rs); those that the tests of
//! an SDK ask (sdk.rs); random queries over random documents, answered also by a second evaluator that is simple and slow
//! (reference.rs, random.rs), which holds what is said of keys and indexes against each document too; and texts and
//! documents that mean harm (hostile.rs).

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ebbtide_documents::query::{BoundQuery, Execution, Flow, Query, QueryLimits, System};
use ebbtide_documents::{Error, Result};
use serde_json::Value;

mod cases;
#[path = "../../../../fuzz/documents/container.rs"]
mod container;
mod fuzz;
mod hostile;
mod limits;
mod narrowed;
mod random;
mod reference;
mod refused;
mod sdk;

/// The system's properties of each document here.
struct Known;

impl System for Known {
    fn rid(&self) -> Cow<'_, str> {
        "ridA".into()
    }

    fn self_link(&self) -> Cow<'_, str> {
        "dbs/1/colls/2/docs/3/".into()
    }

    fn etag(&self) -> Cow<'_, str> {
        "\"00-7\"".into()
    }

    fn ts(&self) -> u64 {
        1_772_357_400
    }
}

/// 2026-03-01T09:30:00.25Z
fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(1_772_357_400_250)
}

fn bound(text: &str, parameters: &[(&str, Value)]) -> Result<BoundQuery> {
    let owned = parameters
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.clone()));
    Query::parse(text)?.bind(&owned.collect::<Vec<_>>())
}

fn push_all(execution: &mut Execution, documents: &[impl AsRef<[u8]>]) -> Result<()> {
    for document in documents {
        if execution.push(document.as_ref(), &Known)? == Flow::Enough {
            break;
        }
    }
    Ok(())
}

/// The rows of a query over these documents.
fn rows(text: &str, documents: &[impl AsRef<[u8]>]) -> Result<Vec<String>> {
    rows_of(&bound(text, &[])?, documents)
}

fn rows_of(query: &BoundQuery, documents: &[impl AsRef<[u8]>]) -> Result<Vec<String>> {
    let mut execution = query.start(&QueryLimits::default(), now());
    push_all(&mut execution, documents)?;
    execution.finish()
}

/// The sentence of a query that is refused.
fn refusal(text: &str) -> String {
    let error: Error = match bound(text, &[]) {
        Ok(query) => match rows_of(&query, &["{}"]) {
            Ok(rows) => panic!("{text} answers {rows:?}"),
            Err(error) => error,
        },
        Err(error) => error,
    };
    assert_eq!(
        (error.status(), error.code()),
        (400, "BadRequest"),
        "{text}"
    );
    error.to_string()
}
