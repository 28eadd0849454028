//! How long after its expiry an item is gone from disk.
//!
//! The database reports the expiry of the item that has been expired for longest and is still in a live file. So an
//! item has left the disk when everything that expired up to its own expiry has; that is noticed at the next reading,
//! and the time up to that reading counts.
//!
//! It also measures the same without the time in which the machine did not run the threads that reclaim
//! (crate::demo::starved).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

#[derive(Default)]
pub struct Watch {
    /// Expiries of items that may still be on disk.
    waiting: BinaryHeap<Reverse<u64>>,
    /// Milliseconds from expiry to removal.
    lags: Vec<u64>,
    /// The longest time of the items still waiting, at the last reading.
    pending: u64,
    /// The longest time of all, without the time that the threads waited.
    let_run: u64,
}

impl Watch {
    pub fn expires(&mut self, moment: u64) {
        self.waiting.push(Reverse(moment));
    }

    /// `oldest` is the database's answer between the readings `asked` and `answered` of the clock; `starved` returns
    /// how long threads have waited for a processor since a moment.
    pub fn look(
        &mut self,
        oldest: Option<u64>,
        (asked, answered): (u64, u64),
        starved: impl Fn(u64) -> u64,
    ) {
        let removed_before = oldest.unwrap_or(u64::MAX).min(asked + 1);
        while let Some(&Reverse(moment)) = self.waiting.peek()
            && moment < removed_before
        {
            self.waiting.pop();
            self.note(answered - moment, starved(moment));
            self.lags.push(answered - moment);
        }
        let first = self
            .waiting
            .peek()
            .map_or(u64::MAX, |&Reverse(moment)| moment);
        self.pending = asked.saturating_sub(first);
        self.note(self.pending, starved(first));
    }

    fn note(&mut self, lag: u64, starved: u64) {
        self.let_run = self.let_run.max(lag.saturating_sub(starved));
    }

    pub fn removed(&self) -> usize {
        self.lags.len()
    }

    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let mut lags = self.lags.clone();
        lags.sort_unstable();
        let rank = (lags.len() as f64 * share).ceil() as usize;
        lags.get(rank.saturating_sub(1))
            .map(|&millis| Duration::from_millis(millis))
    }

    /// The longest time that an item was, or still is, expired and on disk.
    pub fn longest(&self) -> Duration {
        let removed = self.lags.iter().copied().max().unwrap_or(0);
        Duration::from_millis(removed.max(self.pending))
    }

    /// The same without the time in which the threads did not run.
    pub fn longest_let_run(&self) -> Duration {
        Duration::from_millis(self.let_run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_removed_when_the_oldest_on_disk_expired_later() {
        let mut watch = Watch::default();
        for moment in [100, 200, 300] {
            watch.expires(moment);
        }
        let never = |_| 0;
        watch.look(Some(100), (150, 151), never);
        assert_eq!(
            (watch.removed(), watch.longest()),
            (0, Duration::from_millis(50))
        );
        watch.look(Some(200), (250, 252), never);
        assert_eq!(
            (watch.removed(), watch.longest()),
            (1, Duration::from_millis(152))
        );
        watch.look(None, (260, 260), never);
        assert_eq!(
            (watch.removed(), watch.pending),
            (2, 0),
            "300 is yet to come"
        );
        watch.look(None, (300, 301), never);
        assert_eq!(watch.quantile(0.5), Some(Duration::from_millis(60)));
        assert_eq!(watch.quantile(1.0), Some(Duration::from_millis(152)));
        assert_eq!(watch.longest_let_run(), Duration::from_millis(152));
    }

    #[test]
    fn waits_for_the_processor_are_taken_off_item_by_item() {
        let mut watch = Watch::default();
        watch.expires(100);
        watch.expires(200);
        // From 100 to 150 no thread was run.
        let starved = |moment: u64| 150u64.saturating_sub(moment).min(50);
        watch.look(Some(100), (190, 190), starved);
        assert_eq!(watch.longest(), Duration::from_millis(90));
        assert_eq!(watch.longest_let_run(), Duration::from_millis(40));
        watch.look(None, (270, 270), starved);
        assert_eq!(watch.longest(), Duration::from_millis(170));
        assert_eq!(watch.longest_let_run(), Duration::from_millis(120));
    }
}
