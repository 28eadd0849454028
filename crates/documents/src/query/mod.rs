//! Queries.

use std::time::Duration;

/// The bounds of one call of a query.
#[derive(Clone, Debug)]
pub struct QueryLimits {
    /// Rows of one page.
    pub rows: usize,
    /// Bytes of the rows of one page.
    pub bytes: usize,
    /// Time for one page.
    pub time: Duration,
}
