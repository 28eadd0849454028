//! Paths: of partition keys and of patches.

use ebbtide_documents::{Conditions, Container, ContainerDefinition, Patch};
use serde_json::{Value, json};

use crate::container::{container, split};

thread_local! {
    static BY_ID: Container = container(&["/id"]);
}

/// A path, behind it a zero byte and a document. A definition that is taken reads the same again. A path of a patch is the
/// pointer of JSON: what it puts is found there by another implementation.
pub fn document_path(data: &[u8]) {
    let (path, body) = split(data);
    let Ok(path) = std::str::from_utf8(path) else {
        return;
    };
    let definition = ContainerDefinition::new("c", path);
    if definition.check().is_ok() {
        let text = definition.to_json();
        let again = ContainerDefinition::from_json(text.as_bytes()).expect("it was told");
        assert_eq!(again.partition_key, [path]);
    }
    let patch = json!([{ "op": "set", "path": path, "value": "put" }]).to_string();
    let Ok(patch) = Patch::from_json(patch.as_bytes()) else {
        return;
    };
    BY_ID.with(|by_id| {
        let Ok(key) = by_id.partition_key_of(body) else {
            return;
        };
        let Ok(before) = by_id.create(&key, body) else {
            return;
        };
        let none = Conditions::none();
        if let Ok(patched) = by_id.patch(&key, &before.id, &patch, &none) {
            let read: Value = serde_json::from_slice(patched.body()).expect("it is JSON");
            // `/-` is behind the end of an array.
            if !path.ends_with("/-") {
                assert_eq!(read.pointer(path), Some(&json!("put")), "{path} {read}");
            }
        }
        by_id.delete(&key, &before.id, &none).expect("it is there");
    });
}
