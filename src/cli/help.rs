//! How help looks: one text a command, short enough for a screen, and the commands in groups.
//!
//! `-h` and `--help` print the same. clap's own long form puts each option on lines of its own, which is three
//! screens for a command with many options, and its list of commands has one group only.

use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command};

/// The commands as the first help lists them.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Every day", &["delegate", "runs", "sessions", "turns", "scope", "audit", "config", "doctor", "serve"]),
    (
        "Releases",
        &[
            "package",
            "install-release",
            "canary",
            "rehearse",
            "readiness",
            "cutover",
            "rollback",
            "recover",
            "configure-clients",
            "prune",
        ],
    ),
    ("Look at an installation", &["inspect", "history", "state"]),
    ("More", &["demo", "explain", "completions", "man"]),
];

/// Commands that read the config that `--config` names; the others take the option and don't show it.
const USE_CONFIG: [&str; 10] =
    ["delegate", "runs", "sessions", "turns", "scope", "audit", "config", "doctor", "serve", "state"];

/// The command line with its help arranged. What is generated from it (pages, completions) takes the plain one.
pub fn arranged(command: Command) -> Command {
    let listed = list(&command);
    let config = command.get_arguments().find(|arg| arg.get_id() == "config").cloned();
    command
        .mut_subcommands(|sub| {
            let hides = !USE_CONFIG.contains(&sub.get_name()) && !sub.is_hide_set();
            match &config {
                Some(config) if hides => whole(sub).arg(config.clone().hide(true)),
                _ => whole(sub),
            }
        })
        .long_about(None)
        .help_template(format!(
            "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{listed}\nOptions:\n{{options}}{{after-help}}"
        ))
}

/// The text as a whole, without a longer form.
fn whole(command: Command) -> Command {
    // It is played by a scripted agent, which has options of its own.
    if command.is_disable_help_flag_set() {
        return command;
    }
    let text = command.get_long_about().or(command.get_about()).cloned();
    let after = command.get_after_long_help().or(command.get_after_help()).cloned();
    let version = Arg::new("version").short('V').long("version").action(ArgAction::Version).hide(true);
    command
        .before_help(text.unwrap_or_default())
        .long_about(None)
        .after_help(after.unwrap_or_default())
        .after_long_help(None)
        .mut_args(|arg| arg.long_help(None))
        .mut_subcommands(whole)
        .disable_version_flag(true)
        .arg(version)
        .help_template("{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}")
}

/// The commands in their groups; what no group has comes last, so that nothing is forgotten.
fn list(command: &Command) -> String {
    let style = command.get_styles().get_header();
    let mut text = String::new();
    let mut left: Vec<&Command> = command.get_subcommands().filter(|sub| !sub.is_hide_set()).collect();
    let mut write = |heading: &str, commands: &[&Command]| {
        let _ = write!(text, "\n{style}{heading}:{style:#}\n");
        for sub in commands {
            let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {:<18}{about}", sub.get_name());
        }
    };
    for (heading, names) in GROUPS {
        let (mut here, others): (Vec<&Command>, Vec<&Command>) =
            left.into_iter().partition(|sub| names.contains(&sub.get_name()));
        here.sort_by_key(|sub| names.iter().position(|name| *name == sub.get_name()));
        left = others;
        write(heading, &here);
    }
    if !left.is_empty() {
        write("Others", &left);
    }
    text
}
