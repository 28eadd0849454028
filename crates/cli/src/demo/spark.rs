//! Two amounts over time, as two lines of bars under each other.

const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The width; longer times are drawn by the highest amount of each part.
const COLUMNS: usize = 56;

/// Each amount as a bar, relative to the highest of all, at most `most`.
pub fn line(amounts: &[u64], most: u64) -> String {
    let part = amounts.len().div_ceil(COLUMNS).max(1);
    let highest = |part: &[u64]| part.iter().copied().max().unwrap_or(0);
    let parts: Vec<u64> = amounts.chunks(part).map(highest).collect();
    bars(&parts, most)
}

/// The same, a bar for each amount.
pub fn bars(amounts: &[u64], most: u64) -> String {
    let bar = |amount: u64| {
        let steps = BARS.len() as u64 - 1;
        // An amount above zero has a visible bar.
        let height = (u128::from(amount) * u128::from(steps)).div_ceil(u128::from(most.max(1)));
        BARS[height as usize]
    };
    amounts.iter().copied().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_high_as_their_share_of_the_most() {
        assert_eq!(line(&[0, 1, 400, 401, 800], 800), " ▁▄▅█");
        assert_eq!(line(&[0, 0], 0), "  ");
        assert_eq!(line(&[u64::MAX], u64::MAX), "█");
        assert_eq!(line(&[], 7), "");
    }

    #[test]
    fn a_long_time_keeps_its_highest() {
        let mut amounts = vec![0; 1_000];
        amounts[999] = 8;
        let drawn = line(&amounts, 8);
        assert!(
            drawn.chars().count() <= COLUMNS && drawn.ends_with(" █"),
            "{drawn:?}"
        );
    }
}
