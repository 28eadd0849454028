//! Errors, as Cosmos DB answers them.

use std::fmt;

/// The result of a call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of an error; each has a status of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// 304: the document is as the caller has it.
    NotModified,
    /// 400: the request says what is not allowed.
    BadRequest,
    /// 403: the container has reached its largest size.
    Forbidden,
    /// 404: there is none, or it has expired.
    NotFound,
    /// 408: it takes longer than its limit of time.
    RequestTimeout,
    /// 409: there is one already.
    Conflict,
    /// 410: what the request goes on from is known no more.
    Gone,
    /// 412: the document is another than the one of the condition.
    PreconditionFailed,
    /// 413: more bytes than are allowed.
    RequestEntityTooLarge,
    /// 424: another operation of the batch failed.
    FailedDependency,
    /// 429: to be tried again later.
    TooManyRequests,
    /// 500: the engine failed.
    InternalServerError,
    /// 501: this is not offered here.
    NotImplemented,
}

impl ErrorKind {
    /// The status of HTTP.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            ErrorKind::NotModified => 304,
            ErrorKind::BadRequest => 400,
            ErrorKind::Forbidden => 403,
            ErrorKind::NotFound => 404,
            ErrorKind::RequestTimeout => 408,
            ErrorKind::Conflict => 409,
            ErrorKind::Gone => 410,
            ErrorKind::PreconditionFailed => 412,
            ErrorKind::RequestEntityTooLarge => 413,
            ErrorKind::FailedDependency => 424,
            ErrorKind::TooManyRequests => 429,
            ErrorKind::InternalServerError => 500,
            ErrorKind::NotImplemented => 501,
        }
    }

    /// The name, as the member `code` of an answer has it.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            ErrorKind::NotModified => "NotModified",
            ErrorKind::BadRequest => "BadRequest",
            ErrorKind::Forbidden => "Forbidden",
            ErrorKind::NotFound => "NotFound",
            ErrorKind::RequestTimeout => "RequestTimeout",
            ErrorKind::Conflict => "Conflict",
            ErrorKind::Gone => "Gone",
            ErrorKind::PreconditionFailed => "PreconditionFailed",
            ErrorKind::RequestEntityTooLarge => "RequestEntityTooLarge",
            ErrorKind::FailedDependency => "FailedDependency",
            ErrorKind::TooManyRequests => "TooManyRequests",
            ErrorKind::InternalServerError => "InternalServerError",
            ErrorKind::NotImplemented => "NotImplemented",
        }
    }
}

/// A refused or failed call: its kind, and one plain sentence.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    sub_status: u32,
    message: Box<str>,
    engine: Option<Box<ebbtide::Error>>,
}

impl Error {
    /// An error of this kind with this sentence.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error {
            kind,
            sub_status: 0,
            message: message.into().into_boxed_str(),
            engine: None,
        }
    }

    /// A request that says what is not allowed.
    pub fn bad_request(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::BadRequest, message)
    }

    /// A request for what is not offered here.
    pub fn not_implemented(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::NotImplemented, message)
    }

    /// The same with a sub-status.
    #[must_use]
    pub fn with_sub_status(self, sub_status: u32) -> Error {
        Error { sub_status, ..self }
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The status of HTTP.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.kind.status()
    }

    /// The sub-status of Cosmos DB (`x-ms-substatus`), or 0: 1001 where the partition key of a document is another than the
    /// one of the call, 1003 where a database or container is not there, 1014 where a container is full.
    #[must_use]
    pub fn sub_status(&self) -> u32 {
        self.sub_status
    }

    /// The name of its kind, as the member `code` of an answer has it.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.kind.code()
    }

    /// The engine's error, where it is one.
    #[must_use]
    pub fn engine(&self) -> Option<&ebbtide::Error> {
        self.engine.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.engine().map(|engine| engine as _)
    }
}

impl From<ebbtide::Error> for Error {
    fn from(engine: ebbtide::Error) -> Error {
        use ebbtide::Error as Engine;
        let (kind, sub_status) = match &engine {
            Engine::ContainerDropped { .. } => (ErrorKind::NotFound, 1003),
            Engine::Conflict { .. } | Engine::Stalled | Engine::TooManyCommands { .. } => {
                (ErrorKind::TooManyRequests, 0)
            }
            Engine::ReadOnly => (ErrorKind::Forbidden, 0),
            Engine::QuotaFull { .. } => (ErrorKind::Forbidden, 1014),
            Engine::InvalidArgument { .. } => (ErrorKind::BadRequest, 0),
            Engine::ChangesGone { .. } | Engine::ExpirationsGone { .. } => (ErrorKind::Gone, 0),
            Engine::NotUnique { .. } => (ErrorKind::Conflict, 0),
            passing if passing.is_retryable() => (ErrorKind::TooManyRequests, 0),
            _ => (ErrorKind::InternalServerError, 0),
        };
        let message = match &engine {
            Engine::ContainerDropped { .. } => "The container was deleted.".to_owned(),
            other => other.to_string(),
        };
        Error {
            kind,
            sub_status,
            message: message.into_boxed_str(),
            engine: Some(Box::new(engine)),
        }
    }
}
