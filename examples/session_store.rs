//! Sessions that end half an hour after their last use, some that are remembered, and one that is thrown out.
//!
//! `cargo run --example session_store`

use std::time::Duration;

use ebbtide::{Container, Database, DefaultTtl, Ttl};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let db = Database::open(folder.path())?;
    let sessions = db.container("sessions")?;
    sessions.set_default_ttl(DefaultTtl::After(Duration::from_secs(30 * 60)))?;

    log_in(
        &sessions,
        "s-4f1c",
        r#"{"user":"ada","roles":["admin"]}"#,
        false,
    )?;
    log_in(
        &sessions,
        "s-9b07",
        r#"{"user":"grace","roles":["editor"]}"#,
        true,
    )?;

    // Every request restarts the countdown of its session, and is turned away without one.
    assert_eq!(
        request(&sessions, "s-4f1c")?.as_deref(),
        Some(r#"{"user":"ada","roles":["admin"]}"#)
    );
    assert_eq!(request(&sessions, "s-0000")?, None);

    for session in sessions.iter() {
        let session = session?;
        let value = String::from_utf8_lossy(session.value());
        match session.expires_at() {
            Some(end) => {
                let left = end.duration_since(session.written_at())?;
                println!("{value} for {} min", left.as_secs() / 60);
            }
            None => println!("{value} until logged out"),
        }
    }

    sessions.delete("s-9b07")?;
    assert_eq!(request(&sessions, "s-9b07")?, None);
    Ok(db.close()?)
}

/// A new session; false when the identifier is taken, so that nobody can be slipped into the session of another.
fn log_in(sessions: &Container, id: &str, user: &str, remember: bool) -> ebbtide::Result<bool> {
    let ttl = if remember { Ttl::Never } else { Ttl::Inherit };
    sessions.create(id, user, ttl)
}

fn request(sessions: &Container, id: &str) -> ebbtide::Result<Option<String>> {
    if !sessions.touch(id)? {
        return Ok(None);
    }
    let user = sessions.get(id)?;
    Ok(user.map(|user| String::from_utf8_lossy(&user).into_owned()))
}
