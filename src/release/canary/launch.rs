//! `canary launch`: whatever is written in a prompt, a model, an argument or a path reaches the agent as written,
//! and nothing in it is executed.
//!
//! The agent is the release's own program in its part of a scripted Codex, behind a script in a folder whose name
//! is full of what shells act on. Each hostile text would make a file if anybody ran it.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::installed::{diagnosis, serve, structured};
use super::trial::{Stop, Trial};
use crate::agents::{self, LaunchRequest};
use crate::digest;
use crate::policy::{AgentId, Sandbox};
use crate::release::ReleaseId;
use crate::release::mcp_client::McpClient;
use crate::release::probe::Match;
use crate::release::verify::Verified;

/// Every character that a model's name may have.
const MODEL: &str = "0canary.model_x:y/z@1[a]-b";
/// The name of every file that an executed text would make.
const SENTINEL: &str = "canary-was-executed";
/// Longest wait for the scripted turn, in seconds.
const TURN_WAIT: u64 = 30;

/// Everything hostile of one run.
struct Bait {
    /// Folder of the agent's program.
    bin: PathBuf,
    /// Working folder.
    work: PathBuf,
    /// What the scripted agent saw.
    record: PathBuf,
    prompt: String,
    extra_args: Vec<String>,
    models: Vec<String>,
    /// Where executed texts leave their mark.
    sentinel: PathBuf,
}

/// All checks.
pub fn check(trial: &mut Trial<'_>, id: Option<&ReleaseId>) -> Result<(), Stop> {
    let id = id.ok_or_else(|| Stop::found("files", "no release was named"))?;
    let verified = trial.verify(id)?;
    let program = trial.runtime(&verified);
    let bait = Bait::lay(trial)?;
    let agent = scripted_agent(trial, &bait, &program)?;
    let config = trial
        .stage
        .config(|config| {
            config["agents"]["codex"] = agent;
            config["agents"]["codex"]["enabled"] = json!(true);
            config["agents"]["codex"]["extraArgs"] = json!(bait.extra_args);
        })
        .map_err(Stop::at("start"))?;
    let env = trial.stage.environment(trial.setting.context);
    let talked = trial
        .with_server(program, serve(&config), env, |trial, client| talk(trial, client, &verified, &bait));
    // The worst first: also a turn that failed may have run what it should only have passed on.
    nothing_executed(trial, &bait)?;
    talked?;
    arrived(trial, &verified, &bait, &config)?;
    if cfg!(windows) {
        batch_file_is_refused(trial, &verified, &bait)?;
    }
    Ok(())
}

impl Bait {
    fn lay(trial: &Trial<'_>) -> Result<Self, Stop> {
        let stage = trial.stage.path();
        // Another folder without spaces, so that an unquoted path would work as well.
        let sentinel = stage.join("tmp").join(SENTINEL);
        let mark = sentinel.display();
        // No slashes in a name: what is executed here would leave its mark in the working folder.
        let name = if cfg!(windows) {
            format!("it's & echo x%PATH%^ $(echo {SENTINEL}) `{SENTINEL}` ;!(x)")
        } else {
            format!("it's \"a\" $(touch {SENTINEL}) `touch {SENTINEL}` ;&|<>*?[x] \\ ~!#%PATH%^")
        };
        let (bin, work) = (stage.join(format!("bin {name}")), trial.stage.work().join(name));
        for folder in [&bin, &work] {
            std::fs::create_dir(folder).map_err(|error| Stop::found("start", format!("no bait: {error}")))?;
        }
        let commands = format!(
            "'; touch {mark} ; echo ' \"; touch {mark}; \" $(touch {mark}) `touch {mark}` | touch {mark} & touch {mark} \
             && touch {mark} > {mark} %COMSPEC% ^& echo x>{mark} !x! \\ "
        );
        Ok(Self {
            record: stage.join("seen.json"),
            prompt: format!(
                "{commands}\n--sandbox danger-full-access\r\n{{prompt}} \u{202e}日本 \u{1f469}\n{commands}"
            ),
            extra_args: vec!["-c".into(), format!("canary=\"{commands}\""), format!("--canary={commands}")],
            models: vec![
                format!("x;touch {mark}"),
                format!("$(touch {mark})"),
                "--sandbox=danger-full-access".into(),
                "x\ny".into(),
            ],
            bin,
            work,
            sentinel,
        })
    }
}

/// The section of the config that makes the release's own program play Codex.
fn scripted_agent(trial: &Trial<'_>, bait: &Bait, program: &Path) -> Result<Value, Stop> {
    let script = json!({
        "version": "codex-cli 0.0.0",
        "auth": { "stdout": "Logged in with a scripted account\n" },
        "steps": [{ "record": bait.record }, { "answer": { "text": "seen", "dialect": "codex" } }],
    });
    let script = trial
        .stage
        .write("script.json", format!("{script:#}\n").as_bytes(), 0o600)
        .map_err(Stop::at("start"))?;
    if cfg!(windows) {
        // Only the wrappers of package managers are read there; the program is told its part by a variable.
        return Ok(json!({
            "bin": program,
            "extraEnv": { agents::mock_program::SCRIPT_VARIABLE: script },
        }));
    }
    let wrapper = bait.bin.join("codex");
    let text =
        format!("#!/bin/sh\nexec {} mock-agent --script {} -- \"$@\"\n", quoted(program), quoted(&script));
    crate::platform::write_durable(&wrapper, text.as_bytes(), 0o700).map_err(Stop::at("start"))?;
    Ok(json!({ "bin": wrapper }))
}

/// A path as one word of a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', "'\\''"))
}

fn talk(trial: &mut Trial<'_>, client: &mut McpClient, verified: &Verified, bait: &Bait) -> Result<(), Stop> {
    trial.handshake(client, &verified.metadata.version, &verified.metadata.tool_catalogue, Match::Exactly)?;
    diagnosis(trial, client, verified)?;
    let told = structured(client, "agents", "list_agents")?;
    let agents = told["agents"].as_array().cloned().unwrap_or_default();
    let usable: Vec<&str> = agents
        .iter()
        .filter(|agent| agent["enabled"] == json!(true) && agent["health"]["usable"] == json!(true))
        .filter_map(|agent| agent["id"].as_str())
        .collect();
    if usable != ["codex"] {
        return Err(Stop::found("agents", format!("usable are {usable:?}, only codex should be")));
    }
    trial.pass("agents", "codex alone is usable, from a folder with a hostile name");

    let delegate = |client: &mut McpClient, model: &str| {
        client.call(
            "delegate_task",
            json!({ "agent": "codex", "prompt": bait.prompt, "cwd": bait.work, "model": model, "wait_seconds": TURN_WAIT }),
        )
    };
    for model in &bait.models {
        let refused = delegate(client, model).map_err(|error| Stop::Talk("models", error))?;
        if refused["isError"] != json!(true) || bait.record.exists() {
            return Err(Stop::found("models", format!("the model name {model:?} was accepted")));
        }
    }
    trial.pass("models", format!("{} hostile names were refused", bait.models.len()));

    let turn = delegate(client, MODEL).map_err(|error| Stop::Talk("turn", error))?;
    let result = &turn["structuredContent"];
    if result["outcome"] != json!("success") {
        let why = result.pointer("/error/message").or_else(|| result.get("detail")).and_then(Value::as_str);
        let status = result["outcome"].as_str().or_else(|| result["status"].as_str()).unwrap_or("no outcome");
        return Err(Stop::found("turn", format!("{status}: {}", why.unwrap_or("no reason given"))));
    }
    trial.pass("turn", "the scripted agent ran and its answer came back");
    Ok(())
}

/// What the agent saw is what was written.
fn arrived(trial: &mut Trial<'_>, verified: &Verified, bait: &Bait, config: &Path) -> Result<(), Stop> {
    let seen: Value = std::fs::read(&bait.record)
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .ok_or_else(|| Stop::found("arguments", "the scripted agent left no record of what it saw"))?;
    let argv: Vec<String> = serde_json::from_value(seen["argv"].clone()).unwrap_or_default();
    let runtime = verified.metadata.runtime_record().map_err(Stop::at("arguments"))?;
    let own = digest::of_file(&trial.setting.context.exe).is_ok_and(|(sha256, _)| sha256 == runtime.sha256);
    let expected = if own { expected(trial, bait, config) } else { None };
    match expected {
        Some(expected) if argv == expected => {
            trial.pass("arguments", format!("all {} are exactly as expected", argv.len()));
        }
        Some(expected) => {
            let at = argv.iter().zip(&expected).take_while(|(a, b)| a == b).count();
            let what = format!("argument {at} is {:?}, not {:?}", argv.get(at), expected.get(at));
            return Err(Stop::found("arguments", what));
        }
        // Another release may say the same with other options; ours must be whole all the same.
        None => match fault_of(&argv, bait) {
            None => trial.pass("arguments", format!("each of ours is whole among {}", argv.len())),
            Some(what) => return Err(Stop::found("arguments", what)),
        },
    }
    if seen["stdin"] != json!(bait.prompt) || seen["stdinBytes"] != json!(bait.prompt.len()) {
        return Err(Stop::found("prompt", "the agent did not read the prompt as it was written"));
    }
    trial.pass("prompt", format!("{} bytes arrived on standard input as written", bait.prompt.len()));
    Ok(())
}

/// What this program would pass.
fn expected(trial: &Trial<'_>, bait: &Bait, config: &Path) -> Option<Vec<String>> {
    let bytes = std::fs::read(config).ok()?;
    let config = crate::config::check_bytes(trial.setting.context, config, &bytes).config?;
    let request = LaunchRequest {
        effort: None,
        own_agent: None,
        cwd: &crate::config::canonical(&bait.work).ok()?,
        prompt: &bait.prompt,
        sandbox: Sandbox::ReadOnly,
        execution_mode: None,
        timeout: std::time::Duration::ZERO,
        model: Some(MODEL),
        resume: None,
        settings: config.agents.get(&AgentId::Codex)?,
        strict: false,
        run_dir: Path::new(""),
        cli_version: None,
        report_schema: None,
    };
    Some(agents::agent(AgentId::Codex)?.launch(&request).ok()?.args)
}

/// Why an argument list does not carry what was written, each as one argument.
fn fault_of(argv: &[String], bait: &Bait) -> Option<String> {
    let work = crate::config::canonical(&bait.work).unwrap_or_else(|_| bait.work.clone());
    let work = work.to_string_lossy();
    let pair = |names: &[&str], value: &str| {
        argv.windows(2).any(|two| names.contains(&two[0].as_str()) && two[1] == value)
    };
    let holds = [
        ("it does not begin with exec", argv.first().is_some_and(|arg| arg == "exec")),
        ("it does not end with -", argv.last().is_some_and(|arg| arg == "-")),
        ("the working folder is not one argument", pair(&["-C", "--cd"], &work)),
        ("the mode is not read-only", pair(&["-s", "--sandbox"], "read-only")),
        ("the model is not one argument", pair(&["-m", "--model"], MODEL)),
        (
            "the extra arguments are not there as written",
            argv.windows(bait.extra_args.len()).any(|part| part == bait.extra_args),
        ),
        (
            "a hostile text is there more than once",
            argv.iter().filter(|arg| arg.contains(SENTINEL)).count() == 3,
        ),
    ];
    holds.iter().find(|(_, holds)| !holds).map(|(what, _)| (*what).to_owned())
}

fn nothing_executed(trial: &mut Trial<'_>, bait: &Bait) -> Result<(), Stop> {
    let places = [&bait.work, &bait.bin, &trial.stage.work(), &trial.stage.path().to_path_buf()];
    let found = bait.sentinel.exists() || places.iter().any(|folder| folder.join(SENTINEL).exists());
    if found {
        return Err(Stop::found("execution", "a text that was only to be passed on was executed"));
    }
    trial.pass("execution", "nothing of it was executed");
    Ok(())
}

/// Windows: a batch file of unknown making would need cmd.exe, which rewrites arguments; it must be refused.
fn batch_file_is_refused(trial: &mut Trial<'_>, verified: &Verified, bait: &Bait) -> Result<(), Stop> {
    const CHECK: &str = "batch files";
    for extension in ["cmd", "bat"] {
        let wrapper = bait.bin.join(format!("codex.{extension}"));
        let text = format!("@echo off\r\necho x>\"{}\"\r\n", bait.sentinel.display());
        crate::platform::write_durable(&wrapper, text.as_bytes(), 0o700).map_err(Stop::at(CHECK))?;
        let config = trial
            .stage
            .config(|config| config["agents"]["codex"] = json!({ "enabled": true, "bin": wrapper }))
            .map_err(Stop::at(CHECK))?;
        let env = trial.stage.environment(trial.setting.context);
        let program = trial.runtime(verified);
        trial.with_server(program, serve(&config), env, |_, client| {
            client.initialize().map_err(|error| Stop::Talk(CHECK, error))?;
            let request = json!({ "agent": "codex", "prompt": "x", "cwd": bait.work });
            let turn = client.call("delegate_task", request).map_err(|error| Stop::Talk(CHECK, error))?;
            if turn.pointer("/structuredContent/outcome") == Some(&json!("success")) {
                return Err(Stop::found(CHECK, format!("a .{extension} file was run")));
            }
            Ok(())
        })?;
        nothing_executed(trial, bait)?;
    }
    trial.pass(CHECK, ".cmd and .bat files of unknown making are not run");
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn an_argument_list_that_was_rewritten_is_found_out() {
        let folder = tempfile::tempdir().unwrap();
        let work = crate::config::canonical(folder.path()).unwrap();
        let bait = Bait {
            bin: work.clone(),
            record: work.join("seen"),
            prompt: String::new(),
            extra_args: vec![
                "-c".into(),
                format!("a=; touch {SENTINEL}"),
                format!("--b=$(touch {SENTINEL})"),
            ],
            models: Vec::new(),
            sentinel: work.join(SENTINEL),
            work: work.join(SENTINEL),
        };
        let folder = bait.work.to_string_lossy().into_owned();
        let argv = |extra: &[&str]| -> Vec<String> {
            let before = ["exec", "--json", "-C", &folder, "-s", "read-only", "--model", MODEL];
            before.iter().chain(extra).chain(&["-"]).map(|arg| (*arg).to_owned()).collect()
        };
        let extra: Vec<&str> = bait.extra_args.iter().map(String::as_str).collect();
        assert_eq!(fault_of(&argv(&extra), &bait), None);
        let split: Vec<&str> = extra.iter().flat_map(|arg| arg.split(' ')).collect();
        assert!(fault_of(&argv(&split), &bait).is_some());
        assert!(fault_of(&argv(&[extra[0], extra[1]]), &bait).is_some(), "one was dropped");
        assert!(fault_of(&argv(&[&extra[..], &extra[2..]].concat()), &bait).is_some(), "one came twice");
        let wider: Vec<String> =
            argv(&extra).into_iter().map(|arg| arg.replace("read-only", "danger-full-access")).collect();
        assert!(fault_of(&wider, &bait).is_some());
    }
}
