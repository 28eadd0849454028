//! `GET /` of a browser: one page, which shows what `/_status` tells and refers to nothing else.
//!
//! It has no figure itself, so it is answered without a signature. Where requests have to be signed it asks for the key and
//! signs in the browser.

use std::sync::LazyLock;

use data_encoding::BASE64;
use hyper::HeaderMap;
use hyper::header::ACCEPT;
use sha2::{Digest, Sha256};

use crate::reply::{Answer, Reply};

const PAGE: &str = include_str!("page.html");

/// The page may run its own script and style, and ask its own server.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = |tag: &str| {
        let text = between(PAGE, &format!("<{tag}>"), &format!("</{tag}>"));
        format!("'sha256-{}'", BASE64.encode(&Sha256::digest(text)))
    };
    format!(
        "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
        hash("script"),
        hash("style")
    )
});

fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let (_, rest) = text.split_once(from).expect("the page has it");
    rest.split_once(to).expect("the page has it").0
}

/// Whether a page is asked for, as browsers do and SDKs do not.
pub(crate) fn is_asked_for(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    accepted.is_some_and(|accepted| accepted.contains("text/html"))
}

pub(crate) fn page() -> Answer {
    Ok(Reply::text(200, PAGE, "text/html; charset=utf-8")
        .with("content-security-policy", POLICY.as_str())
        .with("x-content-type-options", "nosniff")
        .with("referrer-policy", "no-referrer")
        .with("cache-control", "no-cache")
        .with("vary", "accept"))
}
