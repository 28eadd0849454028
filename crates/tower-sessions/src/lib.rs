//! A store of the crate [tower-sessions](https://docs.rs/tower-sessions) over an [Ebbtide](ebbtide) database: sessions of axum
//! and other services of tower, on the disk of the machine that serves them.
//!
//! ```
//! use std::sync::Arc;
//! use ebbtide::tokio::AsyncDatabase;
//! use time::Duration;
//! use tower_sessions::{Expiry, Session, SessionManagerLayer};
//! use tower_sessions_ebbtide::EbbtideStore;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! let db = AsyncDatabase::open(folder.path()).await?;
//! let store = EbbtideStore::open(&db, "sessions").await?.user_key("user");
//! let sessions = SessionManagerLayer::new(store.clone())
//!     .with_expiry(Expiry::OnInactivity(Duration::minutes(30)));
//! let site = axum::Router::<()>::new().layer(sessions); // and its routes
//!
//! // As in a handler of a login, which is given the session:
//! # let session = Session::new(None, Arc::new(store.clone()), None);
//! session.insert("user", "ada").await?;
//! # session.save().await?;
//! assert_eq!(store.sessions_of("ada").await?.len(), 1);
//! assert_eq!(store.log_out_everywhere("ada").await?, 1);
//! assert!(store.sessions_of("ada").await?.is_empty());
//! # Ok(()) }
//! ```
//!
//! # When a session ends
//!
//! At the `expiry_date` of its record, rounded up to a millisecond, for every reader; a date in the past ends it at once, one
//! more than 68 years ahead never does ([`Ttl::Until`]). There is no task that deletes sessions, and no
//! [`ExpiredDeletion`](tower_sessions_core::ExpiredDeletion): the engine gives the space of ended ones back by itself. What
//! has ended stays so:
//!
//! * [`SessionStore::create`] never writes over a live session: if one has the id, the new one gets another.
//! * [`SessionStore::save`] writes over a live session only. Where a request loaded one that ended before it was saved, by its
//!   time or because its user logged out, nothing is written, and that is no error: the next request finds no session. So
//!   this store is none to be filled as the cache of a `CachingSessionStore`.
//!
//! # The sessions of a user
//!
//! [`EbbtideStore::user_key`] says which key of a session's data names its user. An entry by user is then written in the same
//! batch as the session and has the same lifetime, so both end in the same millisecond. A session that has a user is live as
//! long as its entry is: [`EbbtideStore::sessions_of`] reads the entries of a user, and [`EbbtideStore::log_out_everywhere`]
//! deletes all of them by one write, which waits for no other, however busy the sessions are.
//!
//! # What is stored
//!
//! The container `NAME` has the sessions by the text of their ids, as JSON; `NAME by user` the entries. Both are of the store.
//! A write survives a killed process when it is answered, and a power cut as the database's
//! [`Durability`](ebbtide::Durability) says. Handles may be cloned, and others opened over the same database.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use ebbtide::tokio::{AsyncContainer, AsyncDatabase};
use ebbtide::{Batch, ContainerOptions, DefaultTtl, Expect, Item, Ttl};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;
use tower_sessions_core::SessionStore;
use tower_sessions_core::session::{Id, Record};
use tower_sessions_core::session_store::{Error, Result};

/// Sessions in a database. Cheap to clone; clones are the same store.
#[derive(Clone)]
pub struct EbbtideStore {
    db: AsyncDatabase,
    /// By id.
    sessions: AsyncContainer,
    /// Nothing, by user and id.
    by_user: AsyncContainer,
    user_key: Option<Arc<str>>,
}

impl fmt::Debug for EbbtideStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EbbtideStore")
            .field("sessions", &self.sessions.name())
            .field("user_key", &self.user_key)
            .finish_non_exhaustive()
    }
}

/// A live session of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UserSession {
    /// Its id, which lets in who has it: show no user more of it than a part.
    pub id: Id,
    /// When it was last saved.
    pub written: OffsetDateTime,
    /// When it ends if it is not saved again; `None`: more than 68 years ahead.
    pub expires: Option<OffsetDateTime>,
}

/// A session as it is stored.
#[derive(Serialize, Deserialize)]
struct Stored<'a> {
    /// The user under whom it has an entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user: Option<Cow<'a, str>>,
    /// Seconds since 1970, and nanoseconds: the record's own date, which is finer than the item's end.
    expires: (i64, u32),
    data: Cow<'a, HashMap<String, Value>>,
}

/// A part of [`Stored`].
#[derive(Deserialize)]
struct Owned {
    #[serde(default)]
    user: Option<String>,
}

/// A session to be written.
struct Draft {
    user: Option<String>,
    value: Vec<u8>,
    ttl: Ttl,
}

impl EbbtideStore {
    /// The sessions in the container `name`, which is created where it is missing.
    ///
    /// # Errors
    /// As of [`AsyncDatabase::container_with`]; [`ebbtide::Error::Differs`] if the container, or the one of the entries by
    /// user, is set otherwise than to [`DefaultTtl::NoDefault`].
    pub async fn open(db: &AsyncDatabase, name: &str) -> ebbtide::Result<EbbtideStore> {
        let options = ContainerOptions::new().default_ttl(DefaultTtl::NoDefault);
        let by_user = format!("{name} by user");
        Ok(EbbtideStore {
            db: db.clone(),
            sessions: db.container_with(name, options.clone()).await?,
            by_user: db.container_with(by_user, options).await?,
            user_key: None,
        })
    }

    /// The key of a session's data that names its user, by a text or a number; a session without it has no user. It is read
    /// whenever a session is created or saved, so one that was saved before has no user yet.
    #[must_use]
    pub fn user_key(mut self, key: impl Into<Arc<str>>) -> EbbtideStore {
        self.user_key = Some(key.into());
        self
    }

    /// The live sessions of a user, in no particular order. A number is given as text.
    ///
    /// # Errors
    /// As of reading a container; [`ebbtide::Error::InvalidArgument`] if there is no [`EbbtideStore::user_key`].
    pub async fn sessions_of(&self, user: &str) -> ebbtide::Result<Vec<UserSession>> {
        self.check_user_key()?;
        let prefix = entry(user, None);
        let mut entries = self.by_user.prefix(&prefix);
        let mut sessions = vec![];
        while let Some(item) = entries.next().await.transpose()? {
            sessions.extend(UserSession::of(&item, prefix.len()));
        }
        Ok(sessions)
    }

    /// Ends all live sessions of a user at one moment, and says how many there were; those that are created meanwhile may
    /// end too, and are not counted. A request that has loaded one does not bring it back by saving it; only what is created
    /// later is a session of the user again, and so is one that such a request gives a new id (`Session::cycle_id`).
    ///
    /// ```
    /// use std::sync::Arc;
    /// use ebbtide::Options;
    /// use tower_sessions::Session;
    /// use tower_sessions_ebbtide::EbbtideStore;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = EbbtideStore::open(&Options::temporary()?.into(), "sessions").await?.user_key("user");
    /// for _ in ["phone", "laptop"] {
    ///     let session = Session::new(None, Arc::new(store.clone()), None);
    ///     session.insert("user", 7).await?;
    ///     session.save().await?;
    /// }
    /// assert_eq!(store.log_out_everywhere("7").await?, 2);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As of [`AsyncContainer::delete_range`], and of [`EbbtideStore::sessions_of`].
    pub async fn log_out_everywhere(&self, user: &str) -> ebbtide::Result<usize> {
        let sessions = self.sessions_of(user).await?;
        let first = entry(user, None);
        let behind = [&first[..], &[0xff]].concat();
        self.by_user.delete_range(first..behind).await?;
        let keys = Vec::from_iter(sessions.iter().map(|session| session.id.to_string()));
        self.forget(user, keys).await?;
        Ok(sessions.len())
    }

    /// Removes what is stored of sessions of a user that have no entry any more.
    async fn forget(&self, user: &str, keys: Vec<String>) -> ebbtide::Result<()> {
        let (sessions, by_user, user) =
            (self.sessions.clone(), self.by_user.clone(), user.to_owned());
        let removed = self.db.transaction(move |tx| {
            for key in &keys {
                let Some(item) = tx.item(&sessions, key)? else {
                    continue;
                };
                // It may be another user's by now.
                let is_of = |stored: Owned| stored.user.as_ref() == Some(&user);
                let is_of = decoded(item.value()).is_ok_and(is_of);
                if is_of && !tx.contains(&by_user, entry(&user, Some(key)))? {
                    tx.delete(&sessions, key)?;
                }
            }
            Ok(())
        });
        match removed.await {
            // They end by themselves.
            Err(error) if error.is_conflict() => Ok(()),
            removed => removed,
        }
    }

    /// Without it no session has a user, and nobody would be logged out.
    fn check_user_key(&self) -> ebbtide::Result<()> {
        match self.user_key {
            Some(_) => Ok(()),
            None => Err(ebbtide::Error::InvalidArgument {
                what: "user key",
                given: "none".into(),
                allowed: "EbbtideStore::user_key names one",
            }),
        }
    }

    /// The user whom a session's data names.
    fn user_of(&self, record: &Record) -> Result<Option<String>> {
        let Some(key) = self.user_key.as_deref() else {
            return Ok(None);
        };
        match record.data.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(user)) => Ok(Some(user.clone())),
            Some(Value::Number(user)) => Ok(Some(user.to_string())),
            Some(_) => Err(Error::Encode(format!(
                "{key:?}, which names the session's user, is neither a text nor a number"
            ))),
        }
    }

    fn draft(&self, record: &Record) -> Result<Draft> {
        let user = self.user_of(record)?;
        let stored = Stored {
            user: user.as_deref().map(Cow::Borrowed),
            expires: (
                record.expiry_date.unix_timestamp(),
                record.expiry_date.nanosecond(),
            ),
            data: Cow::Borrowed(&record.data),
        };
        let value =
            serde_json::to_vec(&stored).map_err(|error| Error::Encode(error.to_string()))?;
        let ttl = Ttl::Until(record.expiry_date.into());
        Ok(Draft { user, value, ttl })
    }

    /// A live session, and its user.
    async fn found(&self, key: &str) -> Result<Option<(Item, Option<String>)>> {
        let mut without_entry = None;
        while let Some(item) = self.sessions.item(key).await.map_err(failed)? {
            let Owned { user } = decoded(item.value())?;
            let is_live = match &user {
                Some(user) => self.by_user.contains(entry(user, Some(key))).await,
                None => Ok(true),
            };
            if is_live.map_err(failed)? {
                return Ok(Some((item, user)));
            }
            // Its user logged out everywhere; or it has got another one since it was read, and is another version.
            if without_entry.replace(item.version()) == Some(item.version()) {
                break;
            }
        }
        Ok(None)
    }

    /// False: a condition of the batch does not hold, and nothing was written.
    async fn holds(&self, batch: Batch) -> Result<bool> {
        match self.db.write(batch).await {
            Err(error) if error.is_conflict() => Ok(false),
            written => written.map(|()| true).map_err(failed),
        }
    }
}

#[async_trait]
impl SessionStore for EbbtideStore {
    async fn create(&self, record: &mut Record) -> Result<()> {
        let Draft { user, value, ttl } = self.draft(record)?;
        loop {
            let key = record.id.to_string();
            let mut batch = Batch::new();
            batch.create(&self.sessions, &key, &value, ttl);
            if let Some(user) = &user {
                batch.put_with_ttl(&self.by_user, entry(user, Some(&key)), "", ttl);
            }
            if self.holds(batch).await? {
                return Ok(());
            }
            record.id = Id::default();
        }
    }

    async fn save(&self, record: &Record) -> Result<()> {
        let Draft { user, value, ttl } = self.draft(record)?;
        let key = record.id.to_string();
        while let Some((item, former)) = self.found(&key).await? {
            let mut batch = Batch::new();
            batch.require(&self.sessions, &key, Expect::Version(item.version()));
            batch.put_with_ttl(&self.sessions, &key, &value, ttl);
            if let Some(former) = former {
                let former = entry(&former, Some(&key));
                batch.require(&self.by_user, &former, Expect::Present);
                batch.delete(&self.by_user, &former);
            }
            if let Some(user) = &user {
                batch.put_with_ttl(&self.by_user, entry(user, Some(&key)), "", ttl);
            }
            if self.holds(batch).await? {
                break;
            }
        }
        Ok(())
    }

    async fn load(&self, id: &Id) -> Result<Option<Record>> {
        let Some((item, _)) = self.found(&id.to_string()).await? else {
            return Ok(None);
        };
        let Stored { expires, data, .. } = decoded(item.value())?;
        let (seconds, nanoseconds) = expires;
        let date = OffsetDateTime::from_unix_timestamp(seconds)
            .and_then(|date| date.replace_nanosecond(nanoseconds));
        Ok(Some(Record {
            id: *id,
            data: data.into_owned(),
            expiry_date: date.map_err(|error| Error::Decode(error.to_string()))?,
        }))
    }

    async fn delete(&self, id: &Id) -> Result<()> {
        let key = id.to_string();
        while let Some((item, user)) = self.found(&key).await? {
            let mut batch = Batch::new();
            batch.require(&self.sessions, &key, Expect::Version(item.version()));
            batch.delete(&self.sessions, &key);
            if let Some(user) = user {
                batch.delete(&self.by_user, entry(&user, Some(&key)));
            }
            if self.holds(batch).await? {
                break;
            }
        }
        Ok(())
    }
}

impl UserSession {
    /// The session of an entry, whose key has the id from here on.
    fn of(entry: &Item, id_at: usize) -> Option<UserSession> {
        let id = std::str::from_utf8(&entry.key()[id_at..]).ok()?;
        Some(UserSession {
            id: id.parse().ok()?,
            written: entry.written_at().into(),
            expires: entry.expires_at().map(Into::into),
        })
    }
}

/// The key of an entry, or the beginning of all keys of a user: text never has the byte between user and id.
fn entry(user: &str, id: Option<&str>) -> Vec<u8> {
    [user.as_bytes(), &[0xff], id.unwrap_or_default().as_bytes()].concat()
}

fn decoded<'a, T: Deserialize<'a>>(value: &'a [u8]) -> Result<T> {
    serde_json::from_slice(value).map_err(|error| Error::Decode(error.to_string()))
}

fn failed(error: ebbtide::Error) -> Error {
    match error {
        // A value or a name of a user that is too long.
        ebbtide::Error::InvalidArgument { .. } => Error::Encode(error.to_string()),
        _ => Error::Backend(error.to_string()),
    }
}
