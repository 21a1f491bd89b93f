//! Taking our entries out again: the bytes of before where nobody else wrote since, else our entry alone.

use std::path::{Path, PathBuf};

use super::error::ClientsError;
use super::merge::{self, Refusal, Wanted};
use super::places;
use super::plan::{
    ClientPlan, Found, Options, Plan, Step, blank, diff, own_digest, refuse, selected, wanted,
};
use super::table::{self, Shape};
use super::verdict;
use crate::context::Context;
use crate::digest;
use crate::error::Error;
use crate::release::journal::{self, FileFacts, Outcome, Record};
use crate::release::transaction;
use crate::release::{Layout, ReleaseError};

/// The content of a client's file without what we did to our own entry: for a file that another program changed
/// after us. `before` is what was there before us. None if that cannot be told, or if our own entry was changed
/// as well.
pub fn without_our_change(
    layout: &Layout,
    client: &str,
    before: Option<&[u8]>,
    current: &[u8],
) -> Option<Vec<u8>> {
    let client = table::find(client)?;
    let current = std::str::from_utf8(current).ok()?;
    let before = match before {
        Some(bytes) => std::str::from_utf8(bytes).ok()?,
        None if client.format == table::Format::Toml => "",
        // The file was ours: of what others put into it since, nothing is ours to tidy up.
        None => "{\"mcpServers\":{\"-\":{}},\"permissions\":{\"allow\":[\"-\"]}}",
    };
    // Everything that may have been written: the flags of that run are not known here.
    let mut options = Options { allow_headless: true, ..Options::default() };
    let mut names = vec![table::NAME.to_owned()];
    match client.shape {
        Shape::Server { section, .. } => {
            let seen = merge::entries(client.format, current, section).ok()?.into_iter().next();
            options.state_dir =
                seen.and_then(|seen| Some(PathBuf::from(seen.text(&["env", "AGENT_BRIDGE_STATE_DIR"])?)));
        }
        Shape::Rule { .. } => names.push("agent_bridge".into()),
    }
    let mut text = current.to_owned();
    for name in names {
        text = merge::undo(client.format, before, &text, &wanted(client, layout, &options, &name)?)?;
    }
    Some(text.into_bytes())
}

/// What it takes to have no entry of ours: the bytes of before where nobody else changed the file since, else
/// the entry alone is taken out.
pub fn plan_removal(context: &Context, layout: &Layout, options: &Options) -> Result<Plan, Error> {
    let mut plan = Plan::empty("remove", layout, options);
    for client in selected(options) {
        for location in places::locate(client, context, &options.machine) {
            let mut one = blank(client, &location);
            let look = match places::look(&location.file) {
                Ok(look) => look,
                Err(error) => {
                    one.state = Found::Unusable;
                    one.errors.push(Error::from(error).to_json());
                    plan.clients.push(one);
                    continue;
                }
            };
            let Some(bytes) = look.content.clone() else { continue };
            let Some(wanted) = wanted(client, layout, options, table::NAME) else { continue };
            one.exists = true;
            one.state = Found::Absent;
            one.target = Some(look.target.clone());
            one.links.clone_from(&look.links);
            one.before_sha256 = Some(digest::of_bytes(&bytes));
            one.before = Some(bytes.clone());
            let removed = match std::str::from_utf8(&bytes) {
                Ok(text) => merge::remove(client.format, text, &wanted)
                    .map(|removed| removed.map(|after| (text.to_owned(), after))),
                Err(_) => Err(Refusal::Broken("it is not UTF-8".into())),
            };
            match removed {
                Err(refusal) => {
                    refuse(&mut one, client, &wanted, look.target.clone(), refusal);
                    one.snippet = None;
                }
                Ok(None) => {}
                Ok(Some((text, after))) => {
                    one.state = Found::Correct;
                    one.own_sha256 = Some(own_digest(client, &text));
                    one.verdict = verdict::of(client, context, options, layout, &location.file, Some(&text));
                    let original = original(layout, client.id, &look.target, &bytes, &wanted)?;
                    let shown =
                        merge::merge(client.format, true, &text, &wanted).map(|merged| merged.shown.0);
                    one.diff = diff(&look.target, &(shown.unwrap_or_default(), Vec::new()));
                    one.after = original.unwrap_or_else(|| Some(after.into_bytes()));
                    one.after_sha256 = one.after.as_deref().map(digest::of_bytes);
                    one.action = if one.after.is_some() { Step::Update } else { Step::Delete };
                    one.change_required = true;
                    if let Err(error) = places::require_writable(&location.file, &look) {
                        one.errors.push(Error::from(error).to_json());
                    }
                }
            }
            plan.clients.push(one);
        }
    }
    plan.running = super::live::running(layout, &plan.clients);
    Ok(plan)
}

/// What was in a file before our first change, if every change since was ours. `Some(None)`: the file was not there.
#[allow(clippy::option_option, reason = "not known, known to be absent, known")]
fn original(
    layout: &Layout,
    client: &str,
    target: &Path,
    current: &[u8],
    wanted: &Wanted,
) -> Result<Option<Option<Vec<u8>>>, ReleaseError> {
    let mut facts = Some(FileFacts::of(current));
    for path in journal::transactions(layout)?.into_iter().rev() {
        let transcript = journal::read(&path)?;
        if transcript.outcome() != Some(Outcome::Committed) {
            continue;
        }
        for (_, record) in transcript.records.iter().rev() {
            let Record::Replace { path, before, after, backup, client: owner } = record else { continue };
            if path != target || owner.as_deref() != Some(client) {
                continue;
            }
            if *after != facts {
                return Ok(None);
            }
            let bytes = match backup {
                None => return Ok(Some(None)),
                Some(backup) => transaction::content(&layout.resolve(backup)?)?,
            };
            let Some(bytes) = bytes.filter(|bytes| Some(FileFacts::of(bytes)) == *before) else {
                return Ok(None);
            };
            let text = std::str::from_utf8(&bytes).unwrap_or_default();
            let format = table::find(client).map_or(table::Format::Json, |client| client.format);
            if let Ok(None) = merge::remove(format, text, wanted) {
                return Ok(Some(Some(bytes)));
            }
            facts.clone_from(before);
        }
    }
    Ok(None)
}

/// What it takes to take a transaction's changes of client files back.
pub fn plan_restore(layout: &Layout, txid: &str, options: &Options) -> Result<Plan, Error> {
    let nothing = |why: &str| ClientsError::NothingToRestore {
        txid: txid.chars().take(100).collect(),
        why: why.into(),
    };
    let path = journal::transactions(layout)?
        .into_iter()
        .find(|path| path.file_stem().is_some_and(|stem| stem == txid))
        .ok_or_else(|| nothing("there is no such transaction"))?;
    let transcript = journal::read(&path)?;
    if transcript.outcome() != Some(Outcome::Committed) {
        return Err(nothing("it was undone or is not finished").into());
    }
    let mut plan = Plan::empty("restore", layout, options);
    for (_, record) in transcript.records.iter().rev() {
        let Record::Replace { path, before, after, backup, client: Some(id) } = record else { continue };
        let Some(client) = table::find(id) else { continue };
        if selected(options).all(|one| one.id != client.id) {
            continue;
        }
        let location =
            places::Location { file: path.clone(), why: format!("{txid} changed it"), sign: path.clone() };
        plan.clients.push(restore_one(
            layout,
            client,
            &location,
            before.as_ref(),
            after.as_ref(),
            backup.as_deref(),
        )?);
    }
    if plan.clients.is_empty() {
        return Err(nothing("it changed no client's file").into());
    }
    plan.running = super::live::running(layout, &plan.clients);
    Ok(plan)
}

fn restore_one(
    layout: &Layout,
    client: &'static table::Client,
    location: &places::Location,
    before: Option<&FileFacts>,
    after: Option<&FileFacts>,
    backup: Option<&str>,
) -> Result<ClientPlan, Error> {
    let mut one = blank(client, location);
    let path = &location.file;
    one.target = Some(path.clone());
    let current = transaction::content(path)?;
    let facts = current.as_deref().map(FileFacts::of);
    one.exists = current.is_some();
    one.before_sha256 = facts.as_ref().map(|facts| facts.sha256.clone());
    one.before.clone_from(&current);
    one.state = Found::Correct;
    if facts.as_ref() == before {
        one.after = current;
        one.after_sha256.clone_from(&one.before_sha256);
        return Ok(one);
    }
    let old = match backup {
        Some(backup) => transaction::content(&layout.resolve(backup)?)?,
        None => None,
    };
    let conflict =
        |why: &str| Error::from(ClientsError::Conflict { path: path.clone(), why: why.into() }).to_json();
    if old.as_deref().map(FileFacts::of).as_ref() != before {
        one.errors.push(conflict("its backup is gone"));
        return Ok(one);
    }
    let restored = if facts.as_ref() == after {
        Some(old)
    } else {
        match &current {
            None => None,
            Some(current) => without_our_change(layout, client.id, old.as_deref(), current).map(Some),
        }
    };
    match restored {
        None => {
            one.state = Found::Stale;
            one.errors.push(conflict("our entry in it was changed as well"));
        }
        Some(restored) => {
            one.change_required = restored != one.before;
            one.action = match (&restored, one.change_required) {
                (_, false) => Step::None,
                (None, true) => Step::Delete,
                (Some(_), true) => Step::Update,
            };
            if facts.as_ref() != after && one.change_required {
                one.warnings.push("the file was changed since; only our entry is taken back".into());
            }
            one.after_sha256 = restored.as_deref().map(digest::of_bytes);
            one.after = restored;
        }
    }
    Ok(one)
}
