//! Snapshots.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::api::arguments::{KeyBounds, all_keys, key_range, prefix_range};
use crate::api::cursor::Cursor;
use crate::api::iter::{Iter, Keys};
use crate::api::read::{Reading, reading_methods};
use crate::base::{AtOnce, Error, Result};
use crate::data::item::{Item, Value};
use crate::engine::{ContainerState, Handle, SnapshotPin};

/// The writes up to one moment, in all containers. A snapshot freezes which writes are visible, never the clock or the
/// settings: items that expire are gone from it too.
///
/// ```
/// use ebbtide::Database;
///
/// let folder = tempfile::tempdir()?;
/// let db = Database::open(folder.path())?;
/// let (stock, orders) = (db.container("stock")?, db.container("orders")?);
/// stock.put("apples", "58")?;
/// let snapshot = db.snapshot();
/// stock.put("apples", "0")?;
/// orders.put("o-1", "58 apples")?;
/// // Neither has happened yet.
/// assert_eq!(snapshot.container("stock")?.get("apples")?.unwrap(), "58");
/// assert!(snapshot.container("orders")?.is_empty()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[must_use = "what was written is kept for it as long as it is held"]
pub struct Snapshot {
    pin: Result<Arc<SnapshotPin>>,
    engine: Handle,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").finish_non_exhaustive()
    }
}

impl Snapshot {
    pub(crate) fn new(engine: Handle, pin: SnapshotPin) -> Self {
        Snapshot {
            engine,
            pin: Ok(Arc::new(pin)),
        }
    }

    /// One that cannot be.
    pub(crate) fn refused(engine: Handle, refusal: Error) -> Self {
        Snapshot {
            engine,
            pin: Err(refusal),
        }
    }

    /// A container as of the snapshot.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if there is no container of this name, or it is newer
    /// than the snapshot.
    pub fn container(&self, name: impl AsRef<str>) -> Result<View> {
        let pin = self.pin.clone()?;
        let state = self.engine.existing_container(name.as_ref(), &pin)?;
        Ok(View {
            engine: self.engine.clone(),
            state,
            pin,
        })
    }
}

/// A container as of a [`Snapshot`].
#[derive(Clone)]
#[must_use = "items are read when they are asked for"]
pub struct View {
    state: Arc<ContainerState>,
    pin: Arc<SnapshotPin>,
    engine: Handle,
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("name", &self.state.name())
            .finish_non_exhaustive()
    }
}

impl View {
    /// The name of the container.
    #[must_use]
    pub fn name(&self) -> &str {
        self.state.name()
    }

    pub(crate) fn reading(&self) -> Reading<'_> {
        Reading {
            engine: &self.engine,
            state: &self.state,
            pin: Some(&self.pin),
        }
    }
}

reading_methods!(View);
