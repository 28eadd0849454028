//! The parts that tests and examples of several packages share.
//!
//! ```text
//! model    the promises of expiry by their definition: remembers every write for ever, forgets nothing
//! op       one step of a history, as a value and as a line of text
//! world    a database on a simulated disk and clock, and a model beside it: each step goes to both
//! observed a history with observers beside it: transactions, expirations, copies, followers, quotas
//! stage    a database to play one history on by hand
//! random   a seeded generator of histories, and how a failing one is made short
//! oracle   a history that tells of itself, for databases on real disks that are killed or cut off
//! copy     containers as changes tell them
//! beside   the disk of a writer, for one who reads beside it
//! watched  a simulated disk whose calls can be looked at, refused, or used to do something in their midst
//! patience waiting for what threads do
//! process  what this process takes of the machine
//! ```

// For writers of tests: each file's head says what it is for.
#![allow(missing_docs)]

pub mod beside;
pub mod copy;
pub mod model;
pub mod observed;
pub mod op;
pub mod patience;
pub mod process;
pub mod random;
pub mod stage;
pub mod watched;
pub mod oracle;
pub mod world;

/// Fails, and shows the value, unless it is of this form.
#[macro_export]
macro_rules! assert_is {
    ($value:expr, $form:pat $(,)?) => {{
        let value = &$value;
        assert!(matches!(value, $form), "{value:?}");
    }};
}

/// A call is refused for this argument.
#[track_caller]
pub fn refused<T: std::fmt::Debug>(answer: ebbtide::Result<T>, argument: &str) {
    match answer {
        Err(ebbtide::Error::InvalidArgument { what, .. }) => assert_eq!(what, argument),
        other => panic!("{other:?}, and not {argument} refused"),
    }
}

/// A number from the environment, or its default.
pub fn env(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}

/// The folder that all crates are in.
pub fn repository() -> &'static std::path::Path {
    let own = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).expect("crates/testkit is in it")
}

/// A folder for files of which nothing but their bytes matters: in memory, where that has room, for there no sync takes time.
pub fn scratch() -> tempfile::TempDir {
    const MEMORY: &str = "/dev/shm";
    let has_room = |known: &rustix::fs::StatVfs| known.f_bavail * known.f_frsize > 1 << 30;
    match rustix::fs::statvfs(MEMORY) {
        Ok(known) if has_room(&known) => tempfile::tempdir_in(MEMORY).expect("a folder"),
        _ => tempfile::tempdir().expect("a folder"),
    }
}

/// The message of a panic.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
        (Some(text), _) => text.clone(),
        (None, Some(text)) => (*text).to_owned(),
        (None, None) => "without a message".to_owned(),
    }
}

/// An error's text is for people: it has nothing in Rust's debug format.
pub fn plain(error: &impl std::fmt::Display) -> Result<(), String> {
    // The names of public functions are allowed.
    let text = error.to_string().replace("ebbtide::repair", "");
    let marks = ["{", "}", "Some(", "None", "Id(", "Seq(", "Timestamp(", "::"];
    match marks.iter().find(|mark| text.contains(**mark)) {
        Some(mark) => Err(format!("{mark} is no word for people: {text}")),
        None => Ok(()),
    }
}
