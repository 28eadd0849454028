//! The last minutes, as lines of bars.
//!
//! Amounts of bytes have one scale, so that they can be compared; the rate of writes has its own.

use std::collections::VecDeque;

use super::reading::TopSample;
use crate::demo::spark;
use crate::show;

/// So many samples are kept: no line is longer.
const KEPT: usize = 200;
/// The columns beside the bars.
const WORDS: usize = 34;

#[derive(Default)]
pub struct History {
    samples: VecDeque<Sample>,
}

#[derive(Clone, Copy)]
struct Sample {
    live: u64,
    unreclaimed: u64,
    disk: u64,
    writes: u64,
}

impl History {
    pub fn add(&mut self, reading: &TopSample) {
        let Some(rates) = reading.rates else {
            return;
        };
        if self.samples.len() == KEPT {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample {
            live: reading.stats.live_bytes,
            unreclaimed: reading.stats.expired_bytes,
            disk: reading.stats.disk_bytes,
            writes: rates.writes as u64,
        });
    }

    /// A head and four lines; none before there are two samples.
    pub fn lines(&self, columns: usize) -> Vec<String> {
        let room = columns.saturating_sub(WORDS).min(KEPT);
        if self.samples.len() < 2 || room < 8 {
            return vec![];
        }
        let shown = self.samples.len().min(room);
        let amounts = |of: fn(&Sample) -> u64| -> Vec<u64> {
            let last = self.samples.iter().skip(self.samples.len() - shown);
            last.map(of).collect()
        };
        let most = |amounts: &[u64]| amounts.iter().copied().max().unwrap_or(0);
        let [live, unreclaimed, disk, writes] = [
            amounts(|sample| sample.live),
            amounts(|sample| sample.unreclaimed),
            amounts(|sample| sample.disk),
            amounts(|sample| sample.writes),
        ];
        let scale = most(&live).max(most(&unreclaimed)).max(most(&disk));
        let mut lines = vec![format!("HISTORY, the last {shown} looks")];
        for (name, amounts) in [("live", live), ("unreclaimed", unreclaimed), ("disk", disk)] {
            let highest = show::bytes(most(&amounts));
            let bars = spark::bars(&amounts, scale);
            lines.push(format!("{name:>11}  {highest:>9} at most  {bars}"));
        }
        let highest = show::count(most(&writes));
        let bars = spark::bars(&writes, most(&writes));
        lines.push(format!("{:>11}  {highest:>9} at most  {bars}", "writes/s"));
        lines
    }
}
