//! What one turn used, from what a CLI reports: a figure of the run, or a running total.

use crate::agents::{Metered, Tokens, UsageReport};

/// What a turn used, and the totals to remember for the next turn of the same provider session.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TurnUsage {
    /// Tokens of this turn; `None` is unknown.
    pub tokens: Option<Tokens>,
    /// US dollars of this turn; `None` is unknown.
    pub cost_usd: Option<f64>,
    /// Running token total of the provider session, if it reports one.
    pub token_total: Option<Tokens>,
    /// Running cost total, if it reports one.
    pub cost_total: Option<f64>,
}

/// Totals known from earlier turns of the same provider session.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct KnownTotals {
    /// Tokens, if a total was reported.
    pub tokens: Option<Tokens>,
    /// US dollars, if a total was reported.
    pub cost_usd: Option<f64>,
}

/// Resumed runs report totals over the whole conversation: the turn's use is the difference. A
/// total that falls, or one without a known predecessor, gives unknown and never a negative number.
pub fn turn_usage(report: &UsageReport, resumed: bool, before: KnownTotals) -> TurnUsage {
    let mut usage = TurnUsage::default();
    match report.tokens {
        None => {}
        Some(Metered::Run(tokens)) => usage.tokens = Some(tokens),
        Some(Metered::Total(total)) => {
            usage.token_total = Some(total);
            usage.tokens = match (resumed, before.tokens) {
                (false, _) => Some(total),
                (true, Some(earlier)) => subtract(total, earlier),
                (true, None) => None,
            };
        }
    }
    match report.cost_usd.filter(finite) {
        None => {}
        Some(Metered::Run(cost)) => usage.cost_usd = Some(cost),
        Some(Metered::Total(total)) => {
            usage.cost_total = Some(total);
            usage.cost_usd = match (resumed, before.cost_usd) {
                (false, _) => Some(total),
                (true, Some(earlier)) => Some(total - earlier).filter(|cost| *cost >= 0.0),
                (true, None) => None,
            };
        }
    }
    usage
}

fn finite(cost: &Metered<f64>) -> bool {
    let (Metered::Run(value) | Metered::Total(value)) = cost;
    value.is_finite() && *value >= 0.0
}

fn subtract(total: Tokens, earlier: Tokens) -> Option<Tokens> {
    Some(Tokens {
        input: total.input.checked_sub(earlier.input)?,
        cached_input: total.cached_input.checked_sub(earlier.cached_input)?,
        output: total.output.checked_sub(earlier.output)?,
        reasoning: total.reasoning.checked_sub(earlier.reasoning)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(input: u64) -> UsageReport {
        UsageReport { tokens: Some(Metered::Total(Tokens { input, ..Tokens::default() })), cost_usd: None }
    }

    fn known(input: u64) -> KnownTotals {
        KnownTotals { tokens: Some(Tokens { input, ..Tokens::default() }), cost_usd: None }
    }

    #[test]
    fn totals_of_100_250_270_are_turns_of_100_150_20() {
        let first = turn_usage(&total(100), false, KnownTotals::default());
        let second = turn_usage(&total(250), true, known(100));
        let third = turn_usage(&total(270), true, known(250));
        assert_eq!(
            [first, second, third].map(|u| u.tokens.map(|t| t.input)),
            [Some(100), Some(150), Some(20)]
        );
        assert_eq!(third.token_total.map(|t| t.input), Some(270));
    }

    #[test]
    fn a_falling_or_orphaned_total_is_unknown() {
        assert_eq!(turn_usage(&total(90), true, known(100)).tokens, None);
        assert_eq!(turn_usage(&total(90), true, KnownTotals::default()).tokens, None);
        assert_eq!(turn_usage(&UsageReport::default(), true, known(1)).tokens, None);
    }

    #[test]
    fn costs_follow_the_same_rule() {
        let report = |cost| UsageReport { tokens: None, cost_usd: Some(Metered::Total(cost)) };
        let before = KnownTotals { tokens: None, cost_usd: Some(0.5) };
        assert_eq!(turn_usage(&report(0.75), true, before).cost_usd, Some(0.25));
        assert_eq!(turn_usage(&report(0.25), true, before).cost_usd, None);
        assert_eq!(turn_usage(&report(f64::NAN), false, before).cost_usd, None);
        let run = UsageReport { tokens: None, cost_usd: Some(Metered::Run(0.1)) };
        assert_eq!(turn_usage(&run, true, before).cost_usd, Some(0.1));
    }
}
