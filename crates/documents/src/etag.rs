//! Etags, and the conditions that are made of them.

use std::fmt;
use std::str::FromStr;

use ebbtide::Version;

use crate::error::{Error, ErrorKind, Result};

/// An etag of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Etag {
    /// `*`: that of any document.
    Any,
    /// That of one version.
    Version(Version),
    /// One that no document here has.
    Unknown,
}

impl FromStr for Etag {
    type Err = Error;

    /// With or without its quotation marks. An etag of another form is one that no document has.
    fn from_str(text: &str) -> Result<Etag> {
        let text = text.trim();
        if text == "*" {
            return Ok(Etag::Any);
        }
        let inner = text
            .strip_prefix('"')
            .and_then(|text| text.strip_suffix('"'));
        let inner = inner.unwrap_or(text);
        let number = inner.parse::<u64>().ok();
        let as_written = number.filter(|number| number.to_string() == inner);
        Ok(as_written.map_or(Etag::Unknown, |number| {
            Etag::Version(Version::from_u64(number))
        }))
    }
}

impl fmt::Display for Etag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Etag::Any => f.write_str("*"),
            Etag::Version(version) => write!(f, "\"{version}\""),
            Etag::Unknown => f.write_str("\"\""),
        }
    }
}

/// Conditions of a call on the document that is there. A document that has expired matches none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// The document is of this etag.
    pub if_match: Option<Etag>,
    /// The document is of another etag; with [`Etag::Any`]: there is none.
    pub if_none_match: Option<Etag>,
}

impl Conditions {
    /// None.
    #[must_use]
    pub fn none() -> Conditions {
        Conditions::default()
    }

    /// The document is of this version.
    #[must_use]
    pub fn if_match(version: Version) -> Conditions {
        Conditions {
            if_match: Some(Etag::Version(version)),
            if_none_match: None,
        }
    }
}

impl Etag {
    fn is_of(self, live: Option<Version>) -> bool {
        match self {
            Etag::Any => live.is_some(),
            Etag::Version(version) => live == Some(version),
            Etag::Unknown => false,
        }
    }
}

impl Conditions {
    /// Whether there are any.
    pub(crate) fn are_none(&self) -> bool {
        *self == Conditions::none()
    }

    /// Whether a write may be done to what is there.
    pub(crate) fn check(&self, live: Option<Version>) -> Result<()> {
        let refused = self.if_match.is_some_and(|etag| !etag.is_of(live))
            || self.if_none_match.is_some_and(|etag| etag.is_of(live));
        if refused {
            return Err(precondition_failed());
        }
        Ok(())
    }
}

fn precondition_failed() -> Error {
    Error::new(
        ErrorKind::PreconditionFailed,
        "One of the specified pre-condition is not met: the resource is of another version.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etag_is_read_as_it_is_written() {
        let of = |text: &str| text.parse::<Etag>().unwrap();
        let version = Etag::Version(Version::from_u64(14));
        assert_eq!(
            (of("\"14\""), of("14"), of("*")),
            (version, version, Etag::Any)
        );
        for other in ["\"014\"", "\"+14\"", "\" 14\"", "\"\"", "x", "\"14"] {
            assert_eq!(of(other), Etag::Unknown, "{other}");
        }
    }
}
