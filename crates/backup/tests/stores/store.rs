//! A store that fails, or lets something happen, at its n-th operation; and one that lets it at each object.

use std::io::{self, Read};
use std::sync::{Arc, Mutex};

use ebbtide_backup::{Folder, Store};

/// How an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// This one alone.
    Once,
    /// This one and all that follow, as for a killed process.
    Stop,
    /// This one, after part of the bytes that it stores.
    Torn,
}

#[derive(Default)]
struct FaultPlan {
    /// Operations from now to the fault, and which.
    fault: Option<(u64, Fault)>,
    has_failed: bool,
    meanwhile: Option<(u64, Box<dyn FnOnce() + Send>)>,
}

/// See the file's head. Clones share what is planned.
#[derive(Clone)]
pub struct Watched {
    store: Arc<Folder>,
    plan: Arc<Mutex<FaultPlan>>,
}

impl Watched {
    pub fn new(store: Folder) -> Watched {
        Watched {
            store: Arc::new(store),
            plan: Arc::default(),
        }
    }

    /// The operation after `at` more fails.
    pub fn fail(&self, at: u64, fault: Fault) {
        self.plan.lock().unwrap().fault = Some((at, fault));
    }

    /// Whether one has failed; from now on none does.
    pub fn heal(&self) -> bool {
        let mut plan = self.plan.lock().unwrap();
        plan.fault = None;
        std::mem::take(&mut plan.has_failed)
    }

    /// Before the operation after `at` more, `what` happens.
    pub fn meanwhile(&self, at: u64, what: impl FnOnce() + Send + 'static) {
        self.plan.lock().unwrap().meanwhile = Some((at, Box::new(what)));
    }

    /// Whether it has happened.
    pub fn is_over(&self) -> bool {
        self.plan.lock().unwrap().meanwhile.is_none()
    }

    /// Fails, or says how the operation is to fail in its middle.
    fn step(&self) -> io::Result<Option<Fault>> {
        let mut plan = self.plan.lock().unwrap();
        let due = match plan.meanwhile.take() {
            Some((0, what)) => Some(what),
            Some((at, what)) => {
                plan.meanwhile = Some((at - 1, what));
                None
            }
            None => None,
        };
        let fault = match plan.fault {
            Some((0, fault)) => {
                plan.has_failed = true;
                plan.fault = (fault == Fault::Stop).then_some((0, fault));
                Some(fault)
            }
            Some((at, fault)) => {
                plan.fault = Some((at - 1, fault));
                None
            }
            None => None,
        };
        drop(plan);
        if let Some(what) = due {
            what();
        }
        match fault {
            Some(Fault::Once | Fault::Stop) => Err(io::Error::other("the store is away")),
            other => Ok(other),
        }
    }
}

/// Reads some bytes, then fails.
struct Torn<'a>(&'a mut dyn Read, usize);

impl Read for Torn<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(self.1);
        if most == 0 {
            return Err(io::Error::other("the store went away"));
        }
        let read = self.0.read(&mut buffer[..most])?;
        self.1 -= read;
        match read {
            0 => Err(io::Error::other("the store went away")),
            read => Ok(read),
        }
    }
}

impl Store for Watched {
    fn put(&self, name: &str, from: &mut dyn Read) -> io::Result<bool> {
        match self.step()? {
            Some(_) => self.store.put(name, &mut Torn(from, 100)),
            None => self.store.put(name, from),
        }
    }

    fn get(&self, name: &str) -> io::Result<Box<dyn Read>> {
        self.step()?;
        self.store.get(name)
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        self.step()?;
        self.store.list(folder)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.step()?;
        self.store.delete(name)
    }

    fn abandon(&self) {
        self.store.abandon();
    }
}

/// Calls `before` ahead of each read and write of an object, and of each part of one that is written.
pub struct Hooked<F> {
    pub store: Folder,
    pub before: F,
}

struct HookedRead<'a, F>(&'a mut dyn Read, &'a F, &'a str);

impl<F: Fn(&str)> Read for HookedRead<'_, F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (self.1)(self.2);
        self.0.read(buffer)
    }
}

impl<F: Fn(&str) + Send + Sync> Store for Hooked<F> {
    fn put(&self, name: &str, from: &mut dyn Read) -> io::Result<bool> {
        self.store
            .put(name, &mut HookedRead(from, &self.before, name))
    }

    fn get(&self, name: &str) -> io::Result<Box<dyn Read>> {
        (self.before)(name);
        self.store.get(name)
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        self.store.list(folder)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.store.delete(name)
    }

    fn abandon(&self) {
        self.store.abandon();
    }
}
