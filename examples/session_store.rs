//! Sessions that end half an hour after their last use, with an index by user that slides along.
//!
//! An `IndexedContainer` writes, touches and deletes a session and its entry in the index as one, so both have the same
//! countdown and expire in the same millisecond. No job removes entries of sessions that have ended. Logging out everywhere
//! is one transaction.
//!
//! `cargo run --example session_store`

use std::time::Duration;

use ebbtide::{Database, DefaultTtl, IndexedContainer, ManualClock, Options, Ttl};

const HALF_AN_HOUR: Duration = Duration::from_secs(30 * 60);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = ManualClock::new(1_800_000_000_000); // it is moved by hand, so that the example need not wait
    let store = Store::new(Options::new().clock(clock.clone()).open_temporary()?)?;
    for (id, user) in [("s-phone", "ada"), ("s-laptop", "ada"), ("s-desk", "grace")] {
        assert!(store.log_in(id, user)?);
    }
    println!("ada logs in twice: {:?}", store.of_user("ada")?);
    for _ in 0..3 {
        clock.advance(Duration::from_secs(20 * 60));
        assert_eq!(store.request("s-phone")?.as_deref(), Some("ada"));
    }
    println!("one was used: {:?}", store.of_user("ada")?);
    println!("ada ends {}", store.log_out_everywhere("ada")?);
    Ok(store.db.close()?)
}

struct Store {
    db: Database,
    /// The user, by the session's id; the index is by user.
    sessions: IndexedContainer,
}

impl Store {
    fn new(db: Database) -> ebbtide::Result<Store> {
        let sessions =
            IndexedContainer::new(&db.container("sessions")?, |_id, user| [user.to_vec()])?;
        sessions.set_default_ttl(DefaultTtl::After(HALF_AN_HOUR))?;
        Ok(Store { db, sessions })
    }

    /// False: a live session has the id.
    fn log_in(&self, id: &str, user: &str) -> ebbtide::Result<bool> {
        self.sessions.create(id, user, Ttl::Inherit)
    }

    /// The user of a live session, whose countdown begins anew.
    fn request(&self, id: &str) -> ebbtide::Result<Option<String>> {
        let session = self.sessions.get_and_touch(id)?;
        Ok(session.map(|session| text(session.value())))
    }

    /// Ends all sessions of the user, and says how many there were.
    fn log_out_everywhere(&self, user: &str) -> ebbtide::Result<usize> {
        self.db.transaction(|tx| {
            let sessions = tx.indexed(&self.sessions);
            let found = sessions.find(user)?;
            for session in &found {
                sessions.delete(session.key())?;
            }
            Ok(found.len())
        })
    }

    /// The ids of the user's live sessions.
    fn of_user(&self, user: &str) -> ebbtide::Result<Vec<String>> {
        let ids = self.sessions.index().keys(user);
        ids.map(|id| Ok(text(&id?))).collect()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    fn store(clock: &ManualClock) -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(
            Options::new()
                .clock(clock.clone())
                .open(folder.path())
                .unwrap(),
        )
        .unwrap();
        (folder, store)
    }

    /// The index as the sessions imply it and as it is, at one moment: user, separator, id.
    fn both(store: &Store) -> (Vec<String>, Vec<String>) {
        let snapshot = store.db.snapshot();
        let sessions = snapshot.container("sessions").unwrap();
        let by_user = snapshot.container("sessions#index").unwrap();
        let entry = |user: &[u8], id: &[u8]| format!("{}\0\x01{}", text(user), text(id));
        let items = (&sessions).into_iter().map(|item| item.unwrap());
        let expected = items.map(|item| entry(item.value(), item.key()));
        let mut expected = Vec::from_iter(expected);
        expected.sort();
        let found = by_user.keys(entry(b"", b"")..);
        let found = found.map(|key| text(&key.unwrap())).collect();
        (expected, found)
    }

    /// Threads log in, use and end sessions of the same few users. Whatever they do and whenever the clock moves, the index
    /// holds the sessions that there are.
    #[test]
    fn the_index_holds_the_live_sessions_at_every_moment() {
        let clock = ManualClock::new(1_800_000_000_000);
        let (_folder, store) = store(&clock);
        let (store, is_over) = (&store, &AtomicBool::new(false));
        let (mut seen, mut apart) = (0, None);
        thread::scope(|threads| {
            for thread in 0..4u64 {
                threads.spawn(move || {
                    for n in (thread..).step_by(7) {
                        let (id, user) = (format!("s-{}", n % 50), format!("user-{}", n % 3));
                        match n % 5 {
                            0 | 1 => drop(store.log_in(&id, &user).unwrap()),
                            2 | 3 => drop(store.request(&id).unwrap()),
                            _ if n % 97 == 4 => drop(store.log_out_everywhere(&user).unwrap()),
                            _ => drop(store.sessions.take(&id).unwrap()),
                        }
                        if is_over.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                });
            }
            for round in 0.. {
                let (expected, found) = both(store);
                seen += found.len();
                if expected != found {
                    apart = Some((expected, found));
                }
                // The others may not have begun yet.
                if apart.is_some() || round >= 150 && seen > 0 {
                    break;
                }
                // Only this thread moves the clock: not while it compares.
                clock.advance(Duration::from_secs(60));
                thread::yield_now();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(apart, None, "sessions, and what the index holds");
    }

    #[test]
    fn a_session_and_its_entry_slide_and_end_together() {
        let clock = ManualClock::new(1_800_000_000_000);
        let (_folder, store) = store(&clock);
        assert!(store.log_in("s-1", "ada").unwrap());
        for _ in 0..5 {
            clock.advance(HALF_AN_HOUR - Duration::from_millis(1));
            assert_eq!(store.request("s-1").unwrap().as_deref(), Some("ada"));
        }
        clock.advance(HALF_AN_HOUR - Duration::from_millis(1));
        assert_eq!(store.of_user("ada").unwrap(), ["s-1"]);
        clock.advance(Duration::from_millis(1));
        assert!(store.of_user("ada").unwrap().is_empty());
        assert_eq!(store.request("s-1").unwrap(), None);
        assert!(
            store.log_in("s-1", "grace").unwrap(),
            "the id is free again"
        );
    }

    #[test]
    fn a_user_whose_name_begins_like_another_is_another() {
        let (_folder, store) = store(&ManualClock::new(1_800_000_000_000));
        assert!(store.log_in("s-1", "ada").unwrap());
        assert!(store.log_in("s-2", "adam").unwrap());
        assert_eq!(store.log_out_everywhere("ada").unwrap(), 1);
        assert_eq!(store.of_user("adam").unwrap(), ["s-2"]);
    }
}
