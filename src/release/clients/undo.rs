//! Taking our entries out again: the bytes of before where nobody else wrote since, else our entry alone.

use std::path::{Path, PathBuf};

use super::error::ClientsError;
use super::merge::{self, Refusal, Wanted};
use super::patch::{self, Hunk};
use super::places;
use super::plan::{ClientPlan, Found, Options, Plan, Step, blank, own_digest, refuse, selected, wanted};
use super::table::{self, Shape};
use super::unified::unified;
use super::verdict;
use crate::context::Context;
use crate::digest;
use crate::error::Error;
use crate::release::journal::{self, FileFacts, Outcome, Record};
use crate::release::transaction;
use crate::release::{Layout, ReleaseError};

/// The content of a client's file without what we did to it: for a file that another program changed after us.
/// `before` is what was there before us, `hunks` are the places that we changed. None if that cannot be told, or if
/// what we wrote was changed as well.
pub fn without_our_change(
    layout: &Layout,
    client: &str,
    before: Option<&[u8]>,
    hunks: &[Hunk],
    current: &[u8],
) -> Option<Vec<u8>> {
    let client = table::find(client)?;
    let current = std::str::from_utf8(current).ok()?;
    let old = std::str::from_utf8(before.unwrap_or_default()).ok()?;
    let after = patch::applied(old, hunks).filter(|_| !hunks.is_empty())?;
    let (old, hunks) = match before {
        Some(_) => (old, hunks),
        None if client.format == table::Format::Toml => ("", &[][..]),
        // The file was ours: of what others put into it since, nothing is ours to tidy up.
        None => ("{\"mcpServers\":{\"-\":{}},\"permissions\":{\"allow\":[\"-\"]}}", &[][..]),
    };
    let wanted = |name: &str| wanted(client, layout, &all_options(client, &after), name);
    // A rule has the name of its entry: the one of the two that was not there before.
    let is_new = |name: &&str| {
        let has = |text| {
            wanted(name).is_some_and(|one| !matches!(merge::remove(client.format, text, &one), Ok(None)))
        };
        has(&after) && !has(old)
    };
    let name = [table::NAME, "agent_bridge"].into_iter().find(is_new).unwrap_or(table::NAME);
    merge::undo(client.format, old, &after, current, hunks, &wanted(name)?).map(String::into_bytes)
}

/// Options under which everything is ours that may have been written: the flags of that run are not known.
fn all_options(client: &table::Client, after: &str) -> Options {
    let mut options = Options { allow_headless: true, ..Options::default() };
    if let Shape::Server { section, .. } = client.shape {
        let seen = merge::entries(client.format, after, section).ok().and_then(|mut all| all.pop());
        options.state_dir =
            seen.and_then(|seen| Some(PathBuf::from(seen.text(&["env", "AGENT_BRIDGE_STATE_DIR"])?)));
    }
    options
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
                    one.after = original.unwrap_or_else(|| Some(after.into_bytes()));
                    show(&mut one, client, layout, &text, &wanted);
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

/// Says where a file is changed.
fn show(one: &mut ClientPlan, client: &table::Client, layout: &Layout, text: &str, fallback: &Wanted) {
    let after = one.after.as_deref().map(|bytes| std::str::from_utf8(bytes).unwrap_or_default());
    let before = one.before.is_some().then_some(text);
    let entry = if before.is_some() { text } else { after.unwrap_or_default() };
    let wanted = wanted(client, layout, &all_options(client, entry), table::NAME);
    let path = one.target.clone().unwrap_or_default();
    one.diff = unified(client.format, &path, before, after, Some(wanted.as_ref().unwrap_or(fallback)));
    one.patch = after.map(|after| patch::taken_out(text, after)).unwrap_or_default();
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
            let Record::Replace { path, before, after, backup, client: owner, .. } = record else { continue };
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
        let Record::Replace { path, before, after, backup, client: Some(id), patch } = record else {
            continue;
        };
        let Some(client) = table::find(id) else { continue };
        if selected(options).all(|one| one.id != client.id) {
            continue;
        }
        let location =
            places::Location { file: path.clone(), why: format!("{txid} changed it"), sign: path.clone() };
        plan.clients.push(restore_one(
            layout,
            options,
            client,
            &location,
            before.as_ref(),
            after.as_ref(),
            backup.as_deref(),
            patch,
        )?);
    }
    if plan.clients.is_empty() {
        return Err(nothing("it changed no client's file").into());
    }
    plan.running = super::live::running(layout, &plan.clients);
    Ok(plan)
}

#[allow(clippy::too_many_arguments, reason = "the parts of one record of the journal")]
fn restore_one(
    layout: &Layout,
    options: &Options,
    client: &'static table::Client,
    location: &places::Location,
    before: Option<&FileFacts>,
    after: Option<&FileFacts>,
    backup: Option<&str>,
    hunks: &[Hunk],
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
            Some(current) => without_our_change(layout, client.id, old.as_deref(), hunks, current).map(Some),
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
            let text = current.as_deref().map(|bytes| String::from_utf8_lossy(bytes)).unwrap_or_default();
            if let (true, Some(wanted)) = (one.change_required, wanted(client, layout, options, table::NAME))
            {
                show(&mut one, client, layout, &text, &wanted);
            }
        }
    }
    Ok(one)
}
