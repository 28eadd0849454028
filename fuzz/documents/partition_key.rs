//! Partition keys.

use ebbtide_documents::PartitionKey;

/// Two partition keys as headers have them, with a zero byte between. What can be read is written and reads the same again; two
/// are the same where their keys in the engine are, of which none begins with another of as many parts.
pub fn document_partition_key(data: &[u8]) {
    let (one, other) = crate::container::split(data);
    let read = |bytes: &[u8]| PartitionKey::from_json(&String::from_utf8_lossy(bytes)).ok();
    let (Some(one), other) = (read(one), read(other)) else {
        return;
    };
    assert_eq!(read(one.to_json().as_bytes()).as_ref(), Some(&one), "{one}");
    let Some(other) = other else {
        return;
    };
    let (own, others) = (one.encode(), other.encode());
    assert_eq!(own == others, one == other, "{one} {other}");
    if one != other && one.parts().len() == other.parts().len() {
        assert!(
            !own.starts_with(&others) && !others.starts_with(&own),
            "{one} {other}"
        );
    }
}
