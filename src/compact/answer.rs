//! The share of visible puts among those that are not expired, from a sample.
//!
//! A share of few is known badly: of n sampled puts to the square root of n. So a part takes the share of the whole, unless
//! its own differs by more than that.

use crate::expiry::Tally;

/// The puts counted, and those of them that are visible.
#[derive(Clone, Copy, Default)]
struct SampledPuts {
    asked: Tally,
    shown: Tally,
}

impl SampledPuts {
    fn count_put(&mut self, weight: u64, shows: bool) {
        let tally = Tally {
            count: 1,
            bytes: weight,
        };
        self.asked.add(tally);
        if shows {
            self.shown.add(tally);
        }
    }
}

/// The sample's counts for a part: the puts that are not expired, and the visible ones among them.
#[derive(Clone, Copy, Default)]
pub struct Answer {
    /// Whether the sample has all records.
    is_complete: bool,
    oversized: SampledPuts,
    /// The others, by the power of two of their weight.
    classes: [SampledPuts; 32],
}

impl Answer {
    /// Nothing was asked.
    pub fn none(is_complete: bool) -> Answer {
        Answer {
            is_complete,
            ..Answer::default()
        }
    }

    /// Counts a put that is asked about, and whether it is visible.
    pub fn count(&mut self, weight: u64, shows: bool) {
        let class = weight.max(1).ilog2().min(31);
        self.classes[class as usize].count_put(weight, shows);
    }

    /// Counts an oversized one, which stands for itself.
    pub fn count_oversized(&mut self, weight: u64, shows: bool) {
        self.oversized.count_put(weight, shows);
    }

    /// The sum of several answers, without the oversized puts.
    pub fn sum<'a>(answers: impl IntoIterator<Item = &'a Answer>) -> Answer {
        let mut sum = Answer::none(true);
        for answer in answers {
            sum.is_complete &= answer.is_complete;
            for (class, other) in sum.classes.iter_mut().zip(&answer.classes) {
                class.asked.add(other.asked);
                class.shown.add(other.shown);
            }
        }
        sum
    }

    /// So many puts were asked about.
    pub fn asked(&self) -> u64 {
        self.classes.iter().map(|class| class.asked.count).sum()
    }

    fn shown(&self) -> u64 {
        self.classes.iter().map(|class| class.shown.count).sum()
    }

    /// Estimates how much of `asked` is visible: by the share of all, `pooled`, of which it is a part, unless its own
    /// differs from that by more than its sample is known to. One by one where oversized.
    pub fn shown_of(&self, asked: Tally, pooled: &Answer) -> Tally {
        let is_alike = !self.is_complete && pooled.is_alike(self.shown(), self.asked());
        let source = if is_alike || self.asked() == 0 {
            pooled
        } else {
            self
        };
        let (by_count, by_bytes) = source.shares();
        let of = |all: u64, share: f64| ((all as f64 * share).round() as u64).min(all);
        let rest = asked.less(self.oversized.asked);
        let mut shown = self.oversized.shown;
        shown.add(Tally {
            count: of(rest.count, by_count),
            bytes: of(rest.bytes, by_bytes),
        });
        shown
    }

    /// Whether a share of `asked` is within two standard errors of the own one.
    fn is_alike(&self, shown: u64, asked: u64) -> bool {
        let (n, share) = (asked as f64, self.share());
        let off = shown as f64 - share * n;
        off * off <= 4.0 * n * share * (1.0 - share)
    }

    /// The visible share of the records.
    fn share(&self) -> f64 {
        match self.asked() {
            0 => 1.0,
            asked => self.shown() as f64 / asked as f64,
        }
    }

    /// The visible shares of the records and of their bytes. A few larger values may hold most bytes, and then the share of
    /// the sampled bytes is the share of those few. So a size class uses the share of all records, unless its own share
    /// differs by more than two standard errors: then size and hiding are correlated.
    fn shares(&self) -> (f64, f64) {
        let share = self.share();
        let shown_bytes = |class: &SampledPuts| {
            let is_alike = self.is_alike(class.shown.count, class.asked.count);
            if is_alike && !self.is_complete {
                class.asked.bytes as f64 * share
            } else {
                class.shown.bytes as f64
            }
        };
        let bytes: u64 = self.classes.iter().map(|class| class.asked.bytes).sum();
        let by_bytes = self.classes.iter().map(shown_bytes).sum::<f64>();
        match bytes {
            0 => (share, share),
            bytes => (share, by_bytes / bytes as f64),
        }
    }
}
