//! A store in an object store: S3 and what speaks its protocol, Google Cloud Storage, Azure.
//!
//! ```text
//! put    up to a part    one request, which fails where the name is taken
//!        an object       parts of 8 MiB, one after the other, then one request that makes the object of them
//! get                    a part a request, so that no request lasts longer than a part does, however slow the reader is
//! ```
//!
//! Only objects are stored in parts. They are named by their bytes: to write one twice changes nothing. Azure keeps the
//! parts of all uploads of a name together, and drops the rest when an object is made of some: an upload that another
//! one of the same object has overtaken fails, and finds the object there. Manifests and leases, which must not take a
//! name that is taken, are sent whole, under the condition that it is free.
//!
//! The crate `object_store` speaks the protocols, and repeats what failed in passing. It is asynchronous: each call here
//! waits for it on a runtime of the calling thread, which the store owns. So none may be made within a task of another
//! runtime.

use std::io::{self, Read};
use std::sync::Arc;

use object_store::path::Path;
use object_store::{
    Error as StoreError, MultipartUpload, ObjectStore, ObjectStoreExt, PutMode, PutPayload,
    PutResult, parse_url_opts,
};
use tokio::runtime::{Builder, Runtime};

use crate::error::{Error, Result};
use crate::format::OBJECTS;
use crate::store::Store;

/// Bytes of a part: more than the 5 MiB that S3 demands, and few enough for memory.
const PART: u64 = 8 << 20;

/// Variables of the environment that begin so configure a store, as the crate `object_store` describes them.
const CONFIGURES: [&str; 3] = ["AWS_", "AZURE_", "GOOGLE_"];

/// A store in a bucket, below a prefix.
///
/// With the feature `cloud`. Calls wait for the network, and may not be made within a task of an asynchronous runtime.
///
/// ```no_run
/// use ebbtide_backup::{Backups, Cloud};
///
/// let backups = Backups::open(Cloud::open("s3://bucket/of/db")?);
/// # Ok::<(), ebbtide_backup::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Cloud {
    connection: Arc<Connection>,
    prefix: Path,
}

#[derive(Debug)]
struct Connection {
    store: Box<dyn ObjectStore>,
    runtime: Runtime,
}

impl Cloud {
    /// The store at a URL: `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX`. Keys, region and endpoint
    /// come from the environment: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT_URL`,
    /// `AWS_ALLOW_HTTP`; `GOOGLE_SERVICE_ACCOUNT`; `AZURE_STORAGE_ACCOUNT_NAME`, `AZURE_STORAGE_ACCOUNT_KEY`; and
    /// whatever else the crate `object_store` knows. Sends nothing yet.
    ///
    /// # Errors
    /// [`Error::Refused`] if the URL or the environment names no store.
    pub fn open(url: &str) -> Result<Cloud> {
        let refused = |why: &dyn std::fmt::Display| Error::Refused(format!("{url}: {why}"));
        // One that the program has chosen before stays.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
            let configures = CONFIGURES.iter().any(|start| name.starts_with(start));
            configures.then_some((name, value))
        });
        let parsed = url.parse().map_err(|_| refused(&"this is no URL"))?;
        let (store, prefix) =
            parse_url_opts(&parsed, variables).map_err(|error| refused(&one_line(error)))?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(Error::io("begin", "the runtime of an object store"))?;
        Ok(Cloud {
            connection: Arc::new(Connection { store, runtime }),
            prefix,
        })
    }

    fn path(&self, name: &str) -> Path {
        let parts = name.split('/');
        parts.fold(self.prefix.clone(), |path, part| path.join(part))
    }

    /// Stores all of an object under a name that is free.
    fn put_whole(&self, path: &Path, bytes: Vec<u8>) -> io::Result<bool> {
        let store = &self.connection.store;
        let payload = PutPayload::from(bytes);
        let create = PutMode::Create.into();
        match self.wait(store.put_opts(path, payload.clone(), create)) {
            Ok(_) => Ok(true),
            Err(StoreError::AlreadyExists { .. }) => Ok(false),
            // The store has no condition for it, or was configured to have none.
            Err(StoreError::NotImplemented { .. }) if !self.is_there(path)? => {
                self.wait(store.put(path, payload)).map_err(failed)?;
                Ok(true)
            }
            Err(StoreError::NotImplemented { .. }) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    fn put_in_parts(&self, path: &Path, first: Vec<u8>, from: &mut dyn Read) -> io::Result<bool> {
        let upload = self.wait(self.connection.store.put_multipart(path));
        let mut upload = upload.map_err(failed)?;
        match self.send_parts(upload.as_mut(), first, from) {
            Ok(()) => self.completed(path, self.wait(upload.complete())),
            Err(error) => {
                // Parts that stay are removed by Azure after a week, elsewhere by a rule of the bucket, if it has one.
                let _ = self.wait(upload.abort());
                Err(error)
            }
        }
    }

    /// Whether a multipart object was completed, by the answer to the request that completes it.
    fn completed(&self, path: &Path, answer: object_store::Result<PutResult>) -> io::Result<bool> {
        match answer {
            Ok(_) => Ok(true),
            // Another upload of the same bytes may have made it.
            Err(error) => match self.is_there(path) {
                Ok(true) => Ok(false),
                _ => Err(failed(error)),
            },
        }
    }

    fn send_parts(
        &self,
        upload: &mut dyn MultipartUpload,
        first: Vec<u8>,
        from: &mut dyn Read,
    ) -> io::Result<()> {
        let mut part = first;
        while !part.is_empty() {
            self.wait(upload.put_part(part.into())).map_err(failed)?;
            part = read_part(from)?;
        }
        Ok(())
    }

    fn is_there(&self, path: &Path) -> io::Result<bool> {
        match self.wait(self.connection.store.head(path)) {
            Ok(_) => Ok(true),
            Err(StoreError::NotFound { .. }) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.connection.runtime.block_on(work)
    }
}

impl Store for Cloud {
    fn put(&self, name: &str, from: &mut dyn Read) -> io::Result<bool> {
        let (path, mut bytes) = (self.path(name), read_part(from)?);
        let has_more = bytes.len() as u64 == PART;
        if has_more && name.starts_with(OBJECTS) {
            if self.is_there(&path)? {
                return Ok(false);
            }
            return self.put_in_parts(&path, bytes, from);
        }
        from.read_to_end(&mut bytes)?;
        self.put_whole(&path, bytes)
    }

    fn get(&self, name: &str) -> io::Result<Box<dyn Read>> {
        let path = self.path(name);
        let found = self.wait(async {
            let found = self.connection.store.get(&path).await?;
            let len = found.meta.size;
            let first = match len {
                ..=PART => found.bytes().await?.to_vec(),
                _ => vec![],
            };
            Ok((len, first))
        });
        let (len, first) = found.map_err(failed)?;
        Ok(Box::new(Parts {
            cloud: self.clone(),
            at: first.len() as u64,
            path,
            len,
            part: io::Cursor::new(first),
        }))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let folder = self.path(folder);
        let listed = self.wait(self.connection.store.list_with_delimiter(Some(&folder)));
        let objects = listed.map_err(failed)?.objects.into_iter();
        let name = |path: &Path| path.filename().map(str::to_owned);
        Ok(objects
            .filter_map(|object| name(&object.location))
            .collect())
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        match self.wait(self.connection.store.delete(&self.path(name))) {
            Err(StoreError::NotFound { .. }) => Ok(()),
            done => done.map_err(failed),
        }
    }
}

/// Reads an object part by part.
struct Parts {
    cloud: Cloud,
    path: Path,
    /// Bytes of the object, and how many of them are read or in `part`.
    len: u64,
    at: u64,
    part: io::Cursor<Vec<u8>>,
}

impl Read for Parts {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.part.position() == self.part.get_ref().len() as u64 && self.at < self.len {
            let end = self.len.min(self.at + PART);
            let store = &self.cloud.connection.store;
            let part = self.cloud.wait(store.get_range(&self.path, self.at..end));
            self.part = io::Cursor::new(part.map_err(failed)?.to_vec());
            self.at = end;
        }
        self.part.read(buffer)
    }
}

/// At most a part; less only at the end.
fn read_part(from: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut part = vec![];
    from.take(PART).read_to_end(&mut part)?;
    Ok(part)
}

fn failed(error: StoreError) -> io::Error {
    let kind = match &error {
        StoreError::NotFound { .. } => io::ErrorKind::NotFound,
        StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => {
            io::ErrorKind::PermissionDenied
        }
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, one_line(error))
}

/// An answer of a server may be a page.
fn one_line(error: StoreError) -> String {
    let text = error.to_string();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 7 / 3) as u8).collect()
    }

    fn put(store: &Cloud, name: &str, len: usize) -> bool {
        store.put(name, &mut bytes(len).as_slice()).unwrap()
    }

    /// Goal: objects of every length come back as they were, names are taken once, and what ends in the middle leaves
    /// nothing. Method: a store in memory, which the crate has.
    #[test]
    fn what_is_stored_comes_back() {
        let store = Cloud::open("memory:///some/prefix").unwrap();
        let part = PART as usize;
        let lengths = [0, 1, part - 1, part, part + 1, 2 * part, 2 * part + 5];
        for len in lengths {
            for folder in [OBJECTS, "backups"] {
                let name = format!("{folder}/{len}");
                assert!(put(&store, &name, len), "{name}");
                assert!(!put(&store, &name, len), "{name}");
                let mut read = vec![];
                store.get(&name).unwrap().read_to_end(&mut read).unwrap();
                assert!(read == bytes(len), "{name}: {} bytes", read.len());
            }
        }
        assert_eq!(store.list(OBJECTS).unwrap().len(), lengths.len());
        store.delete("objects/1").unwrap();
        store.delete("objects/1").unwrap();
        assert_eq!(store.list(OBJECTS).unwrap().len(), lengths.len() - 1);
        let gone = store.get("objects/1").map(drop).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn what_cannot_be_read_is_not_stored() {
        struct Ends(u64);
        impl Read for Ends {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let most = buffer.len().min(self.0 as usize);
                self.0 -= most as u64;
                match most {
                    0 => Err(io::Error::other("the disk went away")),
                    most => Ok(most),
                }
            }
        }
        let store = Cloud::open("memory:///").unwrap();
        for len in [5, PART, 2 * PART + 5] {
            let name = format!("objects/{len}");
            store.put(&name, &mut Ends(len)).unwrap_err();
        }
        assert!(store.list(OBJECTS).unwrap().is_empty());
    }

    /// Goal: an upload in parts that another one of the same object has overtaken is no failure, and any other failure
    /// is one. Method: the answer that Azure gives then, with the object there and without.
    #[test]
    fn what_another_upload_has_made_is_there() {
        let store = Cloud::open("memory:///").unwrap();
        let refused = || {
            Err(StoreError::Generic {
                store: "test",
                source: "The specified block list is invalid.".into(),
            })
        };
        let path = store.path("objects/a");
        let failure = store.completed(&path, refused()).unwrap_err();
        assert!(failure.to_string().contains("block list"), "{failure}");
        assert!(put(&store, "objects/a", 1));
        assert!(!store.completed(&path, refused()).unwrap());
    }

    #[test]
    fn what_names_no_store_is_refused() {
        for url in ["nowhere://bucket", "s3:", "file:///tmp", "not a url"] {
            let refused = Cloud::open(url).unwrap_err();
            assert!(matches!(refused, Error::Refused(_)), "{url}: {refused:?}");
            assert!(!refused.to_string().contains('\n'));
        }
    }
}
