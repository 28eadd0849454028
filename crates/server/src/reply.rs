//! Answers, and the failures that become answers.

use std::time::Duration;

use bytes::Bytes;
use ebbtide_documents::ErrorKind;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};

/// How long a client waits before it repeats what was refused for want of room or speed, if nothing else is known.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(100);

/// The result of a handler.
pub(crate) type Answer = Result<Reply, Failure>;

/// An answer. What every answer has is added when it is sent.
#[derive(Debug)]
pub(crate) struct Reply {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Bytes,
    pub content_type: &'static str,
}

impl Reply {
    pub fn empty(status: u16) -> Reply {
        Reply::of(status, Bytes::new(), "application/json")
    }

    pub fn json(status: u16, body: impl Into<Bytes>) -> Reply {
        Reply::of(status, body.into(), "application/json")
    }

    pub fn text(status: u16, body: impl Into<Bytes>, content_type: &'static str) -> Reply {
        Reply::of(status, body.into(), content_type)
    }

    fn of(status: u16, body: Bytes, content_type: &'static str) -> Reply {
        Reply {
            status,
            headers: Vec::new(),
            body,
            content_type,
        }
    }

    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl ToString) -> Reply {
        self.headers.push((name, value.to_string()));
        self
    }

    #[must_use]
    pub fn with_some(self, name: &'static str, value: Option<impl ToString>) -> Reply {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// The response of HTTP. A value that no header may have is left out: only ids of clients can make one.
    pub fn into_response(self) -> Response<Full<Bytes>> {
        let has_body = !self.body.is_empty();
        let mut response = Response::new(Full::new(self.body));
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if has_body {
            response
                .headers_mut()
                .insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        }
        response.headers_mut().reserve(self.headers.len() + 2);
        for (name, value) in self.headers {
            if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
                response
                    .headers_mut()
                    .insert(HeaderName::from_static(name), value);
            }
        }
        response
    }
}

/// A request that is not done: an answer with `code` and `message`.
#[derive(Debug)]
pub(crate) struct Failure {
    pub status: u16,
    pub code: &'static str,
    pub sub_status: u32,
    pub message: String,
    pub retry_after: Option<Duration>,
    /// The session token of what the request saw, where that is known.
    pub session: Option<String>,
}

impl Failure {
    pub fn new(status: u16, code: &'static str, message: impl Into<String>) -> Failure {
        Failure {
            status,
            code,
            sub_status: 0,
            message: message.into(),
            retry_after: None,
            session: None,
        }
    }

    pub fn bad_request(message: impl Into<String>) -> Failure {
        Failure::new(400, "BadRequest", message)
    }

    pub fn not_found(message: impl Into<String>) -> Failure {
        Failure::new(404, "NotFound", message)
    }

    pub fn not_implemented(message: impl Into<String>) -> Failure {
        Failure::new(501, "NotImplemented", message)
    }

    #[must_use]
    pub fn sub_status(self, sub_status: u32) -> Failure {
        Failure { sub_status, ..self }
    }

    pub fn into_reply(self, activity: &str) -> Reply {
        let message = format!("{}\r\nActivityId: {activity}", self.message);
        let body = serde_json::json!({ "code": self.code, "message": message }).to_string();
        let retry_after = self.retry_after.map(|after| after.as_millis());
        Reply::json(self.status, body)
            .with("x-ms-substatus", self.sub_status)
            .with_some("x-ms-retry-after-ms", retry_after)
            .with_some("x-ms-session-token", self.session)
    }
}

impl From<ebbtide_documents::Error> for Failure {
    fn from(error: ebbtide_documents::Error) -> Failure {
        let retry_after = (error.kind() == ErrorKind::TooManyRequests).then_some(RETRY_AFTER);
        Failure {
            status: error.status(),
            code: error.code(),
            sub_status: error.sub_status(),
            message: error.to_string(),
            retry_after,
            session: None,
        }
    }
}

impl From<ebbtide::Error> for Failure {
    fn from(error: ebbtide::Error) -> Failure {
        ebbtide_documents::Error::from(error).into()
    }
}
