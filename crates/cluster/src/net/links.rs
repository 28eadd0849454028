//! The ways to all peers. Invariant: links that lead nowhere go when others come, so that the map is as large as what is in
//! use.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use super::link::Link;
use super::wire::Us;
use super::{From, NetError, Peer, Sockets};

/// Links that are kept though they lead nowhere at the moment: they know when to try again.
const KEPT: usize = 64;

pub(super) struct Links {
    us: Arc<Us>,
    sockets: Sockets,
    closed: watch::Sender<bool>,
    by_addr: Mutex<HashMap<String, Arc<Link>>>,
}

pub(super) fn shut_down() -> NetError {
    NetError::Unreachable(io::Error::other("this node's network was shut down"))
}

impl Links {
    pub fn new(us: Arc<Us>, sockets: Sockets) -> Links {
        Links {
            us,
            sockets,
            closed: watch::Sender::new(false),
            by_addr: Mutex::default(),
        }
    }

    pub fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Rests until all is closed.
    pub async fn closed(&self) {
        let _ = self.closed.subscribe().wait_for(|closed| *closed).await;
    }

    pub async fn ask(
        &self,
        to: &Peer,
        kind: u8,
        body: Bytes,
        within: Duration,
    ) -> Result<(From, Bytes), NetError> {
        self.link(&to.addr).ask(to, kind, body, within).await
    }

    fn link(&self, addr: &str) -> Arc<Link> {
        let mut by_addr = self.by_addr.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(link) = by_addr.get(addr) {
            return link.clone();
        }
        if by_addr.len() >= KEPT {
            by_addr.retain(|_, link| link.is_used());
        }
        let closed = self.closed.subscribe();
        let link = Link::new(
            addr.to_string(),
            self.us.clone(),
            self.sockets.clone(),
            closed,
        );
        by_addr.insert(addr.to_string(), link.clone());
        link
    }
}

#[cfg(test)]
impl Links {
    pub fn len(&self) -> usize {
        self.by_addr.lock().unwrap().len()
    }

    /// Questions that wait for an answer from this address.
    pub fn waiting(&self, addr: &str) -> usize {
        self.link(addr).waiting()
    }
}
