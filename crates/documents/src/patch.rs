//! Patches.

use serde_json::value::RawValue;

use crate::error::Result;

/// One operation of a patch. Paths are JSON pointers; `/-` behind an array is its end.
#[derive(Clone, Debug)]
pub enum PatchOperation {
    /// Adds a member, or an element before this one; replaces a member that is there.
    Add(String, Box<RawValue>),
    /// Sets a member or an element, whether it is there or not.
    Set(String, Box<RawValue>),
    /// Replaces a member or an element that is there.
    Replace(String, Box<RawValue>),
    /// Removes a member or an element that is there.
    Remove(String),
    /// Adds to a number; makes it where there is none.
    Increment(String, Box<RawValue>),
    /// Moves a value: from the first path to the second.
    Move {
        /// What is moved.
        from: String,
        /// Where it is put.
        path: String,
    },
}

/// 1 to 10 operations on a document, and a condition.
#[derive(Clone, Debug)]
pub struct Patch {
    /// In the order in which they are done.
    pub operations: Vec<PatchOperation>,
    /// `FROM c WHERE ...`: the patch is done to a document for which this is true.
    pub condition: Option<String>,
}

impl Patch {
    /// From the body of a request: `{"operations":[{"op":"add","path":"/a","value":1}],"condition":"from c where c.b = 2"}`,
    /// or the array of operations alone.
    ///
    /// # Errors
    /// [`BadRequest`](crate::ErrorKind::BadRequest).
    pub fn from_json(json: &[u8]) -> Result<Patch> {
        let _ = json;
        todo!()
    }
}
