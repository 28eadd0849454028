//! The history of the clients, and whether it has an order: by exhaustion, with time in the state.
//!
//! An order holds all answers, and of what has no answer as much as it likes. It keeps to real time: what was answered before
//! another was asked comes first. Moments do not go back in it. Each answer is what one register with an end, judged at the
//! answer's moment, would have given.

use crate::{ENDS, KEPT};

/// Values of the one item: the first is there from the start.
pub type Item = Option<(u8, u64)>;

/// The requests of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ask {
    Read,
    /// Another value, which outlives the model.
    Put,
    /// A longer life for what is there.
    Keep,
}

impl Ask {
    /// The register after it, and the value that its answer shows, at a moment.
    pub fn on(self, item: Item, at: u64) -> (Item, Option<u8>) {
        let live = item.filter(|(_, end)| *end > at);
        match self {
            Ask::Read => (item, live.map(|(value, _)| value)),
            Ask::Put => (Some((2, KEPT)), None),
            Ask::Keep => (
                live.map(|(value, _)| (value, KEPT)).or(item),
                live.map(|(value, _)| value),
            ),
        }
    }
}

/// An answer: the value that was shown, its moment, and how many entries of the log it has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shown {
    pub value: Option<u8>,
    pub at: u64,
    pub seen: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    pub ask: Ask,
    asked: u8,
    answered: Option<(u8, Shown)>,
}

/// All calls of all clients, in the order in which they were asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct History {
    calls: Vec<Call>,
    events: u8,
}

impl History {
    pub fn ask(&mut self, ask: Ask) -> usize {
        self.events += 1;
        self.calls.push(Call {
            ask,
            asked: self.events,
            answered: None,
        });
        self.calls.len() - 1
    }

    pub fn answer(&mut self, call: usize, shown: Shown) {
        self.events += 1;
        self.calls[call].answered = Some((self.events, shown));
    }

    pub fn shown(&self) -> impl Iterator<Item = (Ask, Shown)> + '_ {
        self.calls
            .iter()
            .filter_map(|call| Some((call.ask, call.answered?.1)))
    }

    /// Pairs of answers of which the first was there before the second was asked for.
    fn in_real_time(&self) -> impl Iterator<Item = (&Call, Shown, &Call, Shown)> + '_ {
        let answered = || {
            self.calls
                .iter()
                .filter_map(|call| Some((call, call.answered?)))
        };
        answered().flat_map(move |(first, (when, one))| {
            answered()
                .filter(move |(second, _)| when < second.asked)
                .map(move |(second, (_, other))| (first, one, second, other))
        })
    }

    pub fn never_goes_back(&self) -> bool {
        self.in_real_time()
            .all(|(_, one, _, other)| one.at <= other.at)
    }

    /// A client that has seen that the first value has ended saw the end of it for everybody.
    pub fn what_has_ended_stays_away(&self) -> bool {
        self.in_real_time().all(|(first, one, _, other)| {
            let has_ended = first.ask == Ask::Read && one.value.is_none();
            !has_ended || other.value != Some(1)
        })
    }

    pub fn has_an_order(&self) -> bool {
        self.place(0, Some((1, ENDS)), 0)
    }

    /// `placed`: a bit for each call.
    fn place(&self, placed: u32, item: Item, at: u64) -> bool {
        let open = |n: usize| placed & (1 << n) == 0;
        let calls = || self.calls.iter().enumerate().filter(|(n, _)| open(*n));
        let Some(first) = calls().filter_map(|(_, call)| Some(call.answered?.0)).min() else {
            return true;
        };
        let may_be_next = calls().filter(|(_, call)| call.asked <= first);
        may_be_next.into_iter().any(|(n, call)| {
            let placed = placed | (1 << n);
            match call.answered {
                Some((_, shown)) => {
                    let (next, value) = call.ask.on(item, shown.at);
                    shown.at >= at && value == shown.value && self.place(placed, next, shown.at)
                }
                None if call.ask == Ask::Read => false,
                // Its moment is unknown; all that matters is whether the item had ended.
                None => [at, at.max(ENDS), at.max(KEPT)]
                    .into_iter()
                    .any(|at| self.place(placed, call.ask.on(item, at).0, at)),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(value: Option<u8>, at: u64) -> Shown {
        Shown { value, at, seen: 0 }
    }

    fn history(reads: &[(Option<u8>, u64)], write: Option<(Option<u8>, u64)>) -> History {
        let mut history = History::default();
        let keep = history.ask(Ask::Keep);
        for (value, at) in reads {
            let read = history.ask(Ask::Read);
            history.answer(read, shown(*value, *at));
        }
        if let Some((value, at)) = write {
            history.answer(keep, shown(value, at));
        }
        history
    }

    #[test]
    fn an_order_is_found_where_there_is_one() {
        let ends = ENDS;
        assert!(history(&[(Some(1), 0), (None, ends)], None).has_an_order());
        assert!(history(&[(Some(1), 0), (Some(1), ends)], None).has_an_order());
        assert!(history(&[(None, ends), (None, KEPT)], Some((None, ends))).has_an_order());
        assert!(history(&[(Some(1), ends)], Some((Some(1), 0))).has_an_order());
        assert!(!history(&[(None, 0)], None).has_an_order());
        assert!(!history(&[(None, ends), (Some(1), ends)], None).has_an_order());
        assert!(!history(&[(None, ends)], Some((Some(1), 0))).has_an_order());
        assert!(!history(&[(Some(1), ends), (Some(1), 0)], None).has_an_order());
        assert!(!history(&[(Some(1), ends), (Some(1), 0)], None).never_goes_back());
        assert!(!history(&[(None, ends), (Some(1), ends)], None).what_has_ended_stays_away());
    }
}
