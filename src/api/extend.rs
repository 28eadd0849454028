//! Batches from iterators: of puts, and of other batches.

use crate::api::batch::Batch;
use crate::api::container::Container;
use crate::base::Ttl;

/// Each is a [`Batch::put`].
///
/// ```
/// use ebbtide::{Batch, Database};
///
/// let folder = tempfile::tempdir()?;
/// let db = Database::open(folder.path())?;
/// let c = db.container("squares")?;
/// let batch: Batch = (0..10).map(|n| (&c, format!("{n}"), format!("{}", n * n))).collect();
/// db.write(batch)?;
/// assert_eq!(c.get("7")?.unwrap(), "49");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl<'c, K: AsRef<[u8]>, V: AsRef<[u8]>> Extend<(&'c Container, K, V)> for Batch {
    fn extend<I: IntoIterator<Item = (&'c Container, K, V)>>(&mut self, puts: I) {
        puts.into_iter().for_each(|(container, key, value)| {
            self.put(container, key, value);
        });
    }
}

/// Each is a [`Batch::put_with_ttl`].
impl<'c, K, V, T> Extend<(&'c Container, K, V, T)> for Batch
where
    K: AsRef<[u8]>,
    V: AsRef<[u8]>,
    T: Into<Ttl>,
{
    fn extend<I: IntoIterator<Item = (&'c Container, K, V, T)>>(&mut self, puts: I) {
        puts.into_iter().for_each(|(container, key, value, ttl)| {
            self.put_with_ttl(container, key, value, ttl);
        });
    }
}

/// All that the other batch has goes behind what this one has: its writes, its conditions, and the error of one that is
/// refused. What its conditions see, and what becomes of the batch where one does not hold, is as it was set there, but
/// they see the writes before them here. The whole is [`Durability::Sync`](crate::Durability::Sync) if one of them is.
///
/// ```
/// use ebbtide::{Batch, Database, Ttl};
///
/// let folder = tempfile::tempdir()?;
/// let db = Database::open(folder.path())?;
/// let c = db.container("c")?;
/// let (mut first, mut second) = (Batch::new(), Batch::new());
/// first.put(&c, "a", "1");
/// second.replace(&c, "a", "2", Ttl::Inherit);
/// first.extend([second]);
/// db.write(first)?; // the second finds what the first has put
/// assert_eq!(c.get("a")?.unwrap(), "2");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl<'b> Extend<&'b Batch> for Batch {
    fn extend<I: IntoIterator<Item = &'b Batch>>(&mut self, batches: I) {
        batches.into_iter().for_each(|batch| self.append(batch));
    }
}

/// As of references to batches.
impl Extend<Batch> for Batch {
    fn extend<I: IntoIterator<Item = Batch>>(&mut self, batches: I) {
        batches.into_iter().for_each(|batch| self.append(&batch));
    }
}

/// A batch of all that [`Extend`] would add to an empty one.
impl<T> FromIterator<T> for Batch
where
    Batch: Extend<T>,
{
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Batch {
        let mut batch = Batch::new();
        batch.extend(items);
        batch
    }
}
