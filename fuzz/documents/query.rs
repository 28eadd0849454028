//! Queries over documents. Apart from src/, which the engine's own tests include: those know nothing of documents.

use std::time::UNIX_EPOCH;

use ebbtide_documents::query::{NoSystem, Query, QueryLimits};

/// A query, behind it a zero byte and a document. What can be read is printed and reads the same again; what runs makes
/// rows of JSON out of a document that is JSON.
pub fn document_query(data: &[u8]) {
    let split = data.iter().position(|&byte| byte == 0);
    let (text, document) = split.map_or((data, &b"{}"[..]), |at| (&data[..at], &data[at + 1..]));
    let Ok(query) = Query::parse(&String::from_utf8_lossy(text)) else {
        return;
    };
    let printed = query.to_string();
    match Query::parse(&printed) {
        Ok(again) => assert_eq!(again, query, "{printed}"),
        // Printed, it may be longer and have more parentheses than are allowed.
        Err(error) => {
            let error = error.to_string();
            let too_much = error.contains("deep") || error.contains("has more than");
            assert!(too_much, "{printed}: {error}");
        }
    }
    let parameters = [("@p".to_owned(), 1.into()), ("@s".to_owned(), "s".into())];
    let Ok(query) = query.bind(&parameters) else {
        return;
    };
    let _ = query.key_condition(&["/pk".to_owned(), "/a/b".to_owned()]);
    let _ = (query.indexed("/a"), query.order());
    let mut execution = query.start(&QueryLimits::default(), UNIX_EPOCH);
    let is_json = serde_json::from_slice::<serde_json::Value>(document).is_ok();
    for _ in 0..2 {
        let pushed = execution.push(document, &NoSystem);
        assert!(!is_json || pushed.is_ok() || pushed.is_err_and(|error| error.status() == 400));
    }
    let Ok(rows) = execution.finish() else {
        return;
    };
    for row in rows.iter().filter(|_| is_json) {
        let read = serde_json::from_str::<serde::de::IgnoredAny>(row);
        assert!(read.is_ok(), "{row}");
    }
}
