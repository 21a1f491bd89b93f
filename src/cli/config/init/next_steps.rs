//! How to go on after the config was written, ready to copy.

use std::path::{Path, PathBuf};

use crate::cli::configure_clients;
use crate::cli::paste::line;
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
        line(words.copied())
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
