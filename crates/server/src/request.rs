//! A request, whole: its path, its headers by their meaning, and its body.

use std::time::SystemTime;

use bytes::Bytes;
use ebbtide_documents::{Conditions, Etag, PartitionKey};
use hyper::{HeaderMap, Method};

use crate::date;
use crate::path::{Path, decode};
use crate::reply::Failure;

pub(crate) struct Request {
    pub method: Method,
    pub path: Path,
    pub query: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// A page has so many rows where the client names no number or -1.
const PAGE: usize = 100;
const LARGEST_PAGE: usize = 10_000;

impl Request {
    /// A header as text; none where it is not UTF-8.
    pub fn header(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.headers.get(name)?.as_bytes()).ok()
    }

    pub fn is_true(&self, name: &str) -> bool {
        self.header(name)
            .is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    /// A parameter of the query of the URL.
    pub fn parameter(&self, name: &str) -> Option<String> {
        let mut members = self
            .query
            .split('&')
            .filter_map(|member| member.split_once('='));
        members
            .find(|(key, _)| *key == name)
            .and_then(|(_, value)| decode(value))
    }

    /// The partition key of the header; an empty array is as none.
    pub fn partition_key(&self) -> Result<Option<PartitionKey>, Failure> {
        let Some(text) = self.header("x-ms-documentdb-partitionkey") else {
            return Ok(None);
        };
        let key = PartitionKey::from_json(text)?;
        Ok((!key.parts().is_empty()).then_some(key))
    }

    /// `If-Match` and `If-None-Match`.
    pub fn conditions(&self) -> Result<Conditions, Failure> {
        Ok(Conditions {
            if_match: self.etag("if-match")?,
            if_none_match: self.etag("if-none-match")?,
        })
    }

    pub fn etag(&self, name: &str) -> Result<Option<Etag>, Failure> {
        let text = self.header(name).filter(|text| !text.is_empty());
        Ok(text.map(str::parse).transpose()?)
    }

    pub fn modified_since(&self) -> Option<SystemTime> {
        self.header("if-modified-since").and_then(date::parse)
    }

    /// Whether answers to writes have no body.
    pub fn is_minimal(&self) -> bool {
        self.header("prefer")
            .is_some_and(|prefer| prefer.contains("return=minimal"))
    }

    /// How many rows a page has at most.
    pub fn page(&self) -> Result<usize, Failure> {
        match self.header("x-ms-max-item-count") {
            None => Ok(PAGE),
            Some(text) => match text.trim().parse::<i64>() {
                Ok(-1) => Ok(LARGEST_PAGE),
                Ok(rows) if rows >= 1 => Ok(usize::try_from(rows)
                    .unwrap_or(LARGEST_PAGE)
                    .min(LARGEST_PAGE)),
                _ => Err(Failure::bad_request(
                    "The header x-ms-max-item-count is -1 or a number from 1.",
                )),
            },
        }
    }
}
