//! How to go on after the config was written, ready to copy.

use std::path::{Path, PathBuf};

use crate::cli::configure_clients;
use crate::context::Context;
use crate::release::{Layout, clients};

/// Something to do after the config is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) title: String,
    pub(super) text: String,
    /// The client that it is about, and its file.
    pub(super) client: Option<(&'static str, Option<PathBuf>)>,
}

impl Step {
    fn of(title: &str, text: String) -> Self {
        Self { title: title.to_owned(), text, client: None }
    }
}

/// The steps after `config` was written. `found_without_flag`: this program finds it without being told.
pub(super) fn after(context: &Context, config: &Path, found_without_flag: bool) -> Vec<Step> {
    let exe = context.exe.display().to_string();
    let shown = config.display().to_string();
    let flag = if found_without_flag { vec![] } else { vec!["--config", shown.as_str()] };
    let command = |words: &[&str], flag: &[&str]| {
        let words = words.iter().chain(flag);
        line(words.copied(), cfg!(windows))
    };
    let mut steps = vec![Step::of("Check that everything is in place", command(&[&exe, "doctor"], &flag))];
    // The config of an installation goes with its launcher.
    let layout = Layout::select(context, None).ok();
    let layout = layout.filter(|layout| layout.config() == config && layout.launcher().is_file());
    let program = match &layout {
        Some(layout) => {
            let words = [&exe, "configure-clients", "--apply"];
            steps.push(Step::of(
                "Register in every host that is here; without --apply only shown",
                command(&words, &[]),
            ));
            layout.launcher()
        }
        None => context.exe.clone(),
    };
    let options = clients::Options {
        state_dir: configure_clients::state_dir(context, None),
        ..clients::Options::default()
    };
    for entry in clients::entries_to_paste(context, &program, config, &options) {
        let file = entry
            .file
            .as_ref()
            .map_or_else(|| "its config file".to_owned(), |file| file.display().to_string());
        steps.push(Step {
            title: format!("Register in {} by hand (add to {file})", entry.name),
            text: entry.text,
            client: Some((entry.client, entry.file)),
        });
    }
    steps.push(Step::of(
        "Only if headless runs shall call the tools without a question, add to these",
        clients::headless_settings().join("\n"),
    ));
    steps
}

/// A command as a person can paste it: for a POSIX shell, or PowerShell on Windows.
fn line<'a>(words: impl Iterator<Item = &'a str>, powershell: bool) -> String {
    let line = words.map(|word| quoted(word, powershell)).collect::<Vec<_>>().join(" ");
    // PowerShell prints a quoted first word instead of running it, unless it is called.
    if powershell && line.starts_with('\'') { format!("& {line}") } else { line }
}

/// A word as a shell takes it literally: POSIX, or PowerShell on Windows.
fn quoted(word: &str, powershell: bool) -> String {
    let plain = !word.is_empty()
        && word.chars().all(|c| c.is_alphanumeric() || "-_./:+=".contains(c) || (powershell && c == '\\'))
        // PowerShell swallows a bare `--`.
        && !(powershell && word == "--");
    match (plain, powershell) {
        (true, _) => word.to_owned(),
        (false, true) => format!("'{}'", word.replace('\'', "''")),
        (false, false) => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_are_quoted_for_the_shell() {
        assert_eq!(quoted("/opt/agent-bridge", false), "/opt/agent-bridge");
        assert_eq!(quoted("/A B/it's", false), r"'/A B/it'\''s'");
        assert_eq!(quoted(r"C:\A B\it's", true), r"'C:\A B\it''s'");
        assert_eq!(quoted(r"C:\x", true), r"C:\x");
        assert_eq!(quoted("", false), "''");
        assert_eq!(quoted("$(x)", false), "'$(x)'");
    }

    #[test]
    fn powershell_runs_a_quoted_program() {
        let line = |program| line([program, "doctor"].into_iter(), true);
        assert_eq!(line(r"C:\A B\agent-bridge.exe"), r"& 'C:\A B\agent-bridge.exe' doctor");
        assert_eq!(line(r"C:\agent-bridge.exe"), r"C:\agent-bridge.exe doctor");
    }

    proptest! {
        /// Undoing the quotes by POSIX rules gives the word back.
        #[test]
        fn posix_quotes_can_be_undone(word in ".{0,20}") {
            let quoted = quoted(&word, false);
            let undone = match quoted.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
                Some(inner) => inner.split(r"'\''").collect::<Vec<_>>().join("'"),
                None => quoted.clone(),
            };
            prop_assert_eq!(undone, word);
        }
    }
}
