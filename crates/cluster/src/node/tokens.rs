//! Join tokens: by one, a new node shows that an operator has let it in.
//!
//! ```text
//! token    NUMBER-SECRET                                       for an operator; stored nowhere
//! stored   ebbtide-cluster.tokens   NUMBER ─> SHA-256 of SECRET              an item that ends with the token
//!                                   NUMBER ─> SHA-256 of SECRET, node's id   once that node has shown it
//! ```
//!
//! Invariants:
//!
//! 1. A token lets one node in, before its end. The log has its use before the node is added, so that the node may ask again, of the
//!    next leader too, and no other node may.
//! 2. No file, log, error or `Debug` has a secret. Digests are compared in constant time.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ebbtide::Ttl;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Core, Node};
use crate::face::Error;
use crate::machine::TOKENS;
use crate::machine::body::{Act, Body, Command, Ending, Life, Reply, When, Write};

const LONGEST: Duration = Duration::from_secs(30 * 86_400);
const REFUSED: &str =
    "its token is not known here, was used by another node, or has ended: make a new one";

/// A token as a new node shows it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JoinToken(String);

impl JoinToken {
    pub fn new(token: String) -> JoinToken {
        JoinToken(token)
    }

    /// Its number and its secret.
    fn parts(&self) -> Option<(&str, &str)> {
        self.0.trim().split_once('-')
    }
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JoinToken(..)")
    }
}

fn digest(secret: &str) -> [u8; 32] {
    Sha256::digest(secret).into()
}

/// Takes as long whatever the difference is.
fn is_same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    let differences = one.iter().zip(other).map(|(a, b)| a ^ b);
    std::hint::black_box(differences.fold(0, |all, one| all | one)) == 0
}

/// Bytes that nobody can foresee, in hex.
fn draw_hex<const N: usize>() -> io::Result<String> {
    let mut drawn = [0; N];
    getrandom::fill(&mut drawn)?;
    Ok(drawn.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The part of a token that is stored.
#[derive(Debug, PartialEq, Eq)]
struct Stored {
    digest: [u8; 32],
    used_by: Option<u64>,
}

impl Stored {
    fn decode(bytes: &[u8]) -> Option<Stored> {
        let (digest, used_by) = bytes.split_first_chunk::<32>()?;
        let used_by = match used_by {
            [] => None,
            id => Some(u64::from_be_bytes(id.try_into().ok()?)),
        };
        Some(Stored {
            digest: *digest,
            used_by,
        })
    }

    fn encode(&self) -> Bytes {
        let used_by = self.used_by.map(u64::to_be_bytes);
        let used_by = used_by.as_ref().map_or(&[][..], |id| &id[..]);
        Bytes::from([&self.digest[..], used_by].concat())
    }
}

fn stored(number: &str, when: When, what: &Stored, life: Life) -> Body {
    Body::One(Write {
        container: TOKENS.to_owned(),
        key: Bytes::copy_from_slice(number.as_bytes()),
        when,
        act: Act::Put(what.encode(), life),
    })
}

impl Node {
    /// Whether this node lets nobody join without a token: see [`NodeOptions::join_by_token`](crate::NodeOptions::join_by_token).
    pub fn joins_by_token(&self) -> bool {
        self.shared.0.joins_by_token
    }

    /// Makes a token by which one new node may join, before so much time is over: from 1 s to 30 days
    /// ([`NodeOptions::join_token`](crate::NodeOptions::join_token)). It is a secret; only its digest is stored.
    ///
    /// # Errors
    /// [`Error::Invalid`]: a time out of range; and those of a write.
    pub async fn make_join_token(&self, lasts: Duration) -> Result<String, Error> {
        if !(Duration::from_secs(1)..=LONGEST).contains(&lasts) {
            let text = format!("a token that lasts {lasts:?}: it lasts 1 s to 30 days");
            return Err(Error::Invalid(text));
        }
        let (number, secret) = (draw_hex::<8>()?, draw_hex::<16>()?);
        let what = Stored {
            digest: digest(&secret),
            used_by: None,
        };
        let life = Life::of(Ttl::After(lasts)).expect("a lifetime goes into the log");
        let body = stored(&number, When::Absent, &what, life);
        let node = self.shared();
        // There may be one already.
        node.command(TOKENS, Command::Create(Ending::NoDefault))
            .await?;
        match node.write(body).await?.value {
            Reply::Done { .. } => Ok(format!("{number}-{secret}")),
            other => Err(Error::Unknown(format!(
                "an answer of another op: {other:?}"
            ))),
        }
    }
}

impl Core {
    /// As the leader: lets a new node in by its token, or says why not.
    pub(super) async fn admit(self: &Arc<Core>, id: u64, token: &JoinToken) -> Result<(), String> {
        let Some((number, secret)) = token.parts() else {
            return Err(REFUSED.to_owned());
        };
        // A second round where the token was used in between.
        for _ in 0..2 {
            let (_, at_ms) = self
                .replica
                .read_point()
                .await
                .map_err(|_| "nobody leads")?;
            let found = self.replica.get(TOKENS, number.as_bytes(), at_ms);
            let Ok((Some(item), _)) = found else {
                return Err(REFUSED.to_owned());
            };
            let known = Stored::decode(item.value())
                .filter(|known| is_same(&known.digest, &digest(secret)));
            let Some(known) = known else {
                return Err(REFUSED.to_owned());
            };
            match known.used_by {
                Some(node) if node == id => return Ok(()),
                Some(_) => return Err(REFUSED.to_owned()),
                None => {}
            }
            let used = Stored {
                used_by: Some(id),
                ..known
            };
            let when = When::Version(item.version().as_u64());
            let op = self.op(stored(number, when, &used, Life::Keep));
            let answer = self.replica.write(op).await;
            let answer = answer.map_err(|_| "the leader has changed: try again")?;
            if matches!(answer.outcome, Ok(Reply::Done { .. })) {
                return Ok(());
            }
        }
        Err(REFUSED.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_stored_as_its_digest_and_shown_by_nothing() {
        let secret = draw_hex::<16>().unwrap();
        assert!(secret.len() == 32 && secret != draw_hex::<16>().unwrap());
        for used_by in [None, Some(7)] {
            let what = Stored {
                digest: digest(&secret),
                used_by,
            };
            let bytes = what.encode();
            assert_eq!(Stored::decode(&bytes), Some(what));
            assert_eq!(Stored::decode(&bytes[..31]), None);
            assert_eq!(Stored::decode(&[&bytes[..], b"1"].concat()), None);
        }
        let token = JoinToken::new(format!("1-{secret}"));
        assert_eq!(token.parts(), Some(("1", &secret[..])));
        assert!(!format!("{token:?}").contains(&secret));
        let mut other = digest(&secret);
        assert!(is_same(&other, &digest(&secret)));
        other[31] ^= 1;
        assert!(!is_same(&other, &digest(&secret)));
    }
}
