//! What may be in `extraArgs`: anything that leaves authority, place, tools and output format alone.

use super::error::AgentError;
use crate::policy::AgentId;

/// Why a flag is refused; the text completes "is refused because".
pub(super) const AUTHORITY: &str = "it can raise what the agent may do";
pub(super) const PLACE: &str = "it changes where the agent works or which session it continues";
pub(super) const TOOLS: &str = "it adds tools, servers, plugins or settings that were not granted";
pub(super) const PROGRAMS: &str = "it makes the agent run a program, outside of any sandbox";
pub(super) const FORMAT: &str = "it changes the output that is read back";
pub(super) const OWNED: &str = "the bridge sets it itself";
pub(super) const UNKNOWN: &str = "it is not known to leave all of that alone";
const POSITIONAL: &str = "only options are allowed, and the prompt travels on standard input";
const CLUSTER: &str = "short options must be written one by one";

/// One agent's command line, as far as `extraArgs` needs to know it.
pub(super) struct Grammar {
    /// The agent.
    pub agent: AgentId,
    /// Flags that are refused, long and short names.
    pub refused: &'static [(&'static str, &'static str)],
    /// Switches that take no value, so a word after them is a positional.
    pub switches: &'static [&'static str],
    /// Whether `-xVALUE` is an option with a value; otherwise it is a bundle of switches.
    pub glued_values: bool,
    /// Judges an option by its value: why it is refused, if it is.
    pub value: fn(flag: &str, value: &str) -> Option<&'static str>,
}

impl Grammar {
    /// Refuses the first argument that may not be passed on.
    pub fn check(&self, args: &[String]) -> Result<(), AgentError> {
        let refuse = |flag: &str, reason| {
            let flag: String = flag.chars().filter(|c| !c.is_control()).take(64).collect();
            Err(AgentError::ExtraArgRefused { agent: self.agent, flag, reason })
        };
        let mut rest = args.iter().peekable();
        while let Some(arg) = rest.next() {
            if !arg.starts_with('-') || arg == "-" || arg == "--" {
                return refuse(arg, POSITIONAL);
            }
            let (flag, glued) = self.split(arg);
            if let Some((_, reason)) = self.refused.iter().find(|(name, _)| *name == flag) {
                return refuse(flag, reason);
            }
            // So these CLIs call what lifts a limit, also what they may add some day.
            if flag.contains("dangerously") {
                return refuse(flag, AUTHORITY);
            }
            if !arg.starts_with("--") && glued.is_some() && !self.glued_values {
                return refuse(arg, CLUSTER);
            }
            if self.switches.contains(&flag) {
                continue;
            }
            // A word after an option is its value; a word that looks like an option is judged as one.
            let value = match glued {
                Some(value) => Some(value),
                None => rest.next_if(|next| !next.starts_with('-')).map(String::as_str),
            };
            if let Some(reason) = (self.value)(flag, value.unwrap_or_default()) {
                // The value of an option that nobody knows may be anything, a secret too.
                let told = if reason == UNKNOWN { flag.to_owned() } else { shown(flag, value) };
                return refuse(&told, reason);
            }
        }
        Ok(())
    }

    /// The flag's name and the value glued to it.
    fn split<'a>(&self, arg: &'a str) -> (&'a str, Option<&'a str>) {
        if arg.starts_with("--") {
            return match arg.split_once('=') {
                Some((flag, value)) => (flag, Some(value)),
                None => (arg, None),
            };
        }
        let end = arg.char_indices().nth(2).map_or(arg.len(), |(at, _)| at);
        let (flag, value) = arg.split_at(end);
        let value = value.strip_prefix('=').unwrap_or(value);
        (flag, (end < arg.len()).then_some(value))
    }
}

/// A flag with the key of its `key=value`, never with the value: that may be a secret.
fn shown(flag: &str, value: Option<&str>) -> String {
    match value {
        Some(value) if !value.is_empty() => {
            format!("{flag} {}", value.split('=').next().unwrap_or_default().trim())
        }
        _ => flag.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    const GRAMMAR: Grammar = Grammar {
        agent: AgentId::Codex,
        refused: &[("--danger", AUTHORITY), ("-s", AUTHORITY)],
        switches: &["--quiet"],
        glued_values: true,
        value: |flag, value| (flag == "-c" && value.starts_with("bad")).then_some(AUTHORITY),
    };

    fn check(args: &[&str]) -> Result<(), AgentError> {
        GRAMMAR.check(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn every_spelling_of_a_refused_flag_is_found() {
        for args in [
            &["--danger"][..],
            &["--danger=yes"],
            &["--ok", "value", "--danger"],
            &["-s", "full"],
            &["-sfull"],
            &["-s=full"],
            &["-c", "bad=1"],
            &["-cbad=1"],
            &["-c=bad=1"],
            &["word"],
            &["--quiet", "word"],
            &["--"],
            &["-"],
            &["--ok", "-s"],
        ] {
            assert!(check(args).is_err(), "{args:?}");
        }
    }

    #[test]
    fn what_calls_itself_dangerous_is_refused_whatever_it_is() {
        assert!(check(&["--dangerously-do-it"]).is_err());
        assert!(check(&["--allow-dangerously-do-it=yes"]).is_err());
        check(&["--append-system-prompt", "dangerously"]).unwrap();
    }

    #[test]
    fn harmless_options_pass_with_their_values() {
        check(&["--ok", "value", "-c", "good=1", "-cgood=2", "--quiet", "--x=y"]).unwrap();
    }

    #[test]
    fn the_refusal_names_the_key_and_not_the_value() {
        let error = check(&["-c", "bad.key=\"hunter2\""]).unwrap_err();
        assert!(error.to_string().contains("-c bad.key"), "{error}");
        assert!(!error.to_string().contains("hunter2"));
    }
}
