//! Ranges of lines: those of hunks, merged where they are close, few enough to be read.

/// Lines between two changes that are still one range.
const GAP: u64 = 3;
/// Most ranges of a file.
const MOST: usize = 5;
/// Ranges kept while more come.
const HELD: usize = 256;

/// Ranges of a file after the change, in ascending order. First and last line, both inclusive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    /// Adds a hunk's new side: `count` lines from line `start` on. Where lines were only taken out, `start` is the line
    /// before the place, and that one line is the range.
    pub fn add(&mut self, start: u64, count: u64) {
        let first = start.max(1);
        let last = first.saturating_add(count.max(1) - 1);
        match self.0.last_mut() {
            Some(before) if first <= before.1.saturating_add(GAP + 1) => {
                before.1 = before.1.max(last);
                before.0 = before.0.min(first);
            }
            _ => self.0.push((first, last)),
        }
        if self.0.len() > HELD {
            self.join_nearest();
        }
    }

    /// At most five ranges that cover every changed line, as `10-28, 40-44`. None without a change.
    pub fn text(&self) -> Option<String> {
        let mut few = self.clone();
        while few.0.len() > MOST {
            few.join_nearest();
        }
        let ranges: Vec<String> = few.0.iter().map(|(first, last)| format!("{first}-{last}")).collect();
        (!ranges.is_empty()).then(|| ranges.join(", "))
    }

    fn join_nearest(&mut self) {
        let distance = |pair: &[(u64, u64)]| match pair {
            [one, two] => two.0.saturating_sub(one.1),
            _ => u64::MAX,
        };
        let nearest = self.0.windows(2).enumerate().min_by_key(|(_, pair)| distance(pair)).map(|(at, _)| at);
        if let Some(at) = nearest {
            let (_, last) = self.0.remove(at + 1);
            if let Some(range) = self.0.get_mut(at) {
                range.1 = range.1.max(last);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    fn text(hunks: &[(u64, u64)]) -> Option<String> {
        let mut ranges = Ranges::default();
        hunks.iter().for_each(|(start, count)| ranges.add(*start, *count));
        ranges.text()
    }

    #[test]
    fn a_hunk_is_a_range_and_close_ones_are_one() {
        assert_eq!(text(&[]), None);
        assert_eq!(text(&[(10, 19)]).unwrap(), "10-28");
        assert_eq!(text(&[(1, 1)]).unwrap(), "1-1");
        // Three lines between them, then four.
        assert_eq!(text(&[(10, 1), (14, 1)]).unwrap(), "10-14");
        assert_eq!(text(&[(10, 1), (15, 1)]).unwrap(), "10-10, 15-15");
        // Lines taken out behind line 7, and at the beginning.
        assert_eq!(text(&[(0, 0), (7, 0)]).unwrap(), "1-1, 7-7");
    }

    #[test]
    fn more_than_five_are_joined_where_they_are_nearest() {
        let hunks = [(1, 1), (100, 1), (110, 1), (300, 1), (500, 1), (700, 1)];
        assert_eq!(text(&hunks).unwrap(), "1-1, 100-110, 300-300, 500-500, 700-700");
    }

    proptest! {
        #[test]
        fn every_changed_line_is_covered(steps in proptest::collection::vec((1u64..60, 0u64..8), 0..400)) {
            let mut at = 0;
            let hunks: Vec<(u64, u64)> = steps.iter().map(|(step, count)| {
                at += step;
                let start = at;
                at += count;
                (start, *count)
            }).collect();
            let shown = text(&hunks).unwrap_or_default();
            let ranges: Vec<(u64, u64)> = shown.split(", ").filter(|range| !range.is_empty()).map(|range| {
                let (first, last) = range.split_once('-').unwrap();
                (first.parse().unwrap(), last.parse().unwrap())
            }).collect();
            prop_assert!(ranges.len() <= MOST);
            prop_assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0));
            for (start, count) in hunks {
                for line in start..start + count.max(1) {
                    prop_assert!(ranges.iter().any(|(first, last)| (*first..=*last).contains(&line)), "{line} of {shown}");
                }
            }
        }
    }
}
