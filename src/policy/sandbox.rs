//! Ceilings: a default is lowered to fit, an explicit request that does not fit is refused.

use super::Sandbox;

/// Where the wanted mode came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The caller named a mode.
    Explicitly(Sandbox),
    /// The caller said nothing; this is the configured default.
    ByDefault(Sandbox),
}

/// The outcome of [`decide_sandbox`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxDecision {
    /// Run with this mode.
    Granted(Sandbox),
    /// The caller asked for more than the ceiling allows.
    Denied {
        /// What was asked for.
        asked: Sandbox,
        /// The lowest ceiling that applies.
        ceiling: Sandbox,
    },
}

/// The mode a turn runs with, given the ceilings that apply (global, per agent, forced read-only).
pub fn decide_sandbox(asked: Asked, ceilings: &[Sandbox]) -> SandboxDecision {
    let ceiling = ceilings.iter().copied().min().unwrap_or(Sandbox::ReadOnly);
    match asked {
        Asked::ByDefault(mode) => SandboxDecision::Granted(mode.min(ceiling)),
        Asked::Explicitly(mode) if mode <= ceiling => SandboxDecision::Granted(mode),
        Asked::Explicitly(asked) => SandboxDecision::Denied { asked, ceiling },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mode() -> impl Strategy<Value = Sandbox> {
        prop_oneof![Just(Sandbox::ReadOnly), Just(Sandbox::WorkspaceWrite), Just(Sandbox::FullAccess)]
    }

    proptest! {
        #[test]
        fn a_granted_mode_never_exceeds_any_ceiling(mode in mode(), explicit: bool, ceilings in prop::collection::vec(mode(), 0..4)) {
            let asked = if explicit { Asked::Explicitly(mode) } else { Asked::ByDefault(mode) };
            match decide_sandbox(asked, &ceilings) {
                SandboxDecision::Granted(granted) => {
                    prop_assert!(ceilings.iter().all(|ceiling| granted <= *ceiling));
                    prop_assert!(granted <= mode);
                    if explicit { prop_assert_eq!(granted, mode); }
                }
                SandboxDecision::Denied { asked, ceiling } => {
                    prop_assert!(explicit);
                    prop_assert!(asked > ceiling);
                }
            }
        }

        #[test]
        fn a_default_is_always_granted(mode in mode(), ceilings in prop::collection::vec(mode(), 0..4)) {
            prop_assert!(matches!(decide_sandbox(Asked::ByDefault(mode), &ceilings), SandboxDecision::Granted(_)));
        }
    }

    #[test]
    fn without_any_ceiling_nothing_above_reading_is_granted() {
        assert_eq!(
            decide_sandbox(Asked::ByDefault(Sandbox::FullAccess), &[]),
            SandboxDecision::Granted(Sandbox::ReadOnly)
        );
    }
}
