//! Patches.

use ebbtide_documents::{Conditions, Container, Patch};
use serde_json::Value;

use crate::container::{container, split};

thread_local! {
    static PATCHED: Container = container(&["/pk"]);
}

/// A patch, behind it a zero byte and a document. A patch that is refused leaves the document as it is; one that is done leaves
/// a document of its id and partition key, as the answer has it.
pub fn document_patch(data: &[u8]) {
    let (patch, body) = split(data);
    let Ok(patch) = Patch::from_json(patch) else {
        return;
    };
    PATCHED.with(|c| {
        let Ok(key) = c.partition_key_of(body) else {
            return;
        };
        let none = Conditions::none();
        let Ok((before, _)) = c.upsert(&key, body, &none) else {
            return;
        };
        let patched = c.patch(&key, &before.id, &patch, &none);
        let after = c.read(&key, &before.id).expect("it was written");
        match patched {
            Ok(patched) => {
                assert_eq!(
                    (patched.body(), patched.version),
                    (after.body(), after.version)
                );
                let read: Value = serde_json::from_slice(after.body()).expect("it is JSON");
                assert_eq!(read["id"], before.id);
                assert_eq!(c.partition_key_of(after.body()).expect("it is stored"), key);
            }
            Err(error) => {
                assert!((400..500).contains(&error.status()), "{error}");
                assert_eq!(
                    (before.body(), before.version),
                    (after.body(), after.version)
                );
            }
        }
        c.delete(&key, &before.id, &none).expect("it is there");
    });
}
