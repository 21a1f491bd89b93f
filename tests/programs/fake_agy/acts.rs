//! What happens in a run, one act after the other.

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::permissions::Shape;
use super::scenario::{Act, Failure, Scenario, Version, acts_of};
use super::turn::Turn;
use super::{HOLDER, os};

/// What comes after an act.
pub enum Flow {
    Next,
    /// Something was not allowed, and this version ends the turn for it.
    Denied,
    Failed(Failure),
    TimedOut,
    /// Without a result.
    Gone(i32),
}

/// Does it.
pub fn perform(turn: &mut Turn, act: &Act) -> Flow {
    match act {
        Act::Say(text) => turn.say(text),
        Act::Edit(path, content) => {
            let (path, content) = (path.clone(), content.clone());
            return writing(turn, "write_file", json!({ "path": path }), |turn| write(turn, &path, &content));
        }
        Act::SneakEdit(path, content) => write(turn, path, content),
        Act::Delete(path) => {
            let file = turn.workspace.join(path);
            return writing(turn, "write_file", json!({ "path": path }), |_| {
                std::fs::remove_file(&file).expect("a file to remove");
            });
        }
        Act::Rename(from, to) => {
            let (old, new) = (turn.workspace.join(from), turn.workspace.join(to));
            return writing(turn, "write_file", json!({ "path": to }), |_| {
                std::fs::rename(&old, &new).expect("a file to rename");
            });
        }
        Act::Symlink(target, link) => {
            let path = turn.workspace.join(link);
            return writing(turn, "write_file", json!({ "path": link }), |_| {
                os::symlink(target, &path).expect("a place for the link");
            });
        }
        Act::Commit(message) => {
            if !turn.permissions.command() {
                return denied(turn, "command", "git commit");
            }
            for arguments in [&["add", "-A"][..], &["commit", "-q", "-m", message]] {
                let mut git = Command::new("git");
                git.args(["-c", "user.name=agy", "-c", "user.email=agy@localhost"]).args(arguments);
                let ended =
                    git.current_dir(&turn.workspace).stdin(Stdio::null()).status().expect("git starts");
                assert!(ended.success(), "git {arguments:?}");
            }
            turn.step("tool", json!({ "tool_name": "run_command" }));
        }
        Act::Command(line) => {
            if !turn.permissions.command() {
                return denied(turn, "command", line);
            }
            turn.step("tool", tool("run_command", json!({ "command": line }), "exit code 0"));
        }
        Act::ListTools => {
            for server in &mut turn.servers {
                server.list().expect("the server lists its tools");
                let listed = json!({ "server": server.name, "tools": server.tools });
                turn.record.push("listed", listed);
            }
        }
        Act::Call(name, arguments) => return call(turn, name, arguments),
        Act::Stderr(line) => eprintln!("{line}"),
        Act::Stdout(text) => turn.output.raw(text.as_bytes()),
        Act::Log(line) => turn.log(line),
        Act::LoginPrompt(stream) => turn.login_prompt(stream),
        Act::Keyring => {
            let patience = if turn.version < Version(1, 1, 12) { 1 } else { 5 };
            turn.log(&format!("keyringAuth: timed out after {patience}s, trying the next source"));
        }
        Act::SleepMs(time) if !turn.sleep(Duration::from_millis(*time)) => return Flow::TimedOut,
        Act::SleepMs(_) => {}
        Act::Hang => {
            turn.hang();
            return Flow::TimedOut;
        }
        Act::WaitFor(path) => {
            while !path.exists() {
                if !turn.sleep(Duration::from_millis(5)) {
                    return Flow::TimedOut;
                }
            }
        }
        Act::IgnoreTerm => os::ignore_requests_to_end(),
        Act::HoldStdout => hold_stdout(),
        Act::Huge(bytes) => huge(turn, *bytes),
        Act::TornEvent => {
            let id = &turn.conversation.id;
            turn.output.raw(
                format!(
                    "{{\"event\":\"step_update\",\"step_update\":{{\"conversation_id\":\"{id}\",\"text_del"
                )
                .as_bytes(),
            );
        }
        Act::Vanish(code) => return Flow::Gone(*code),
        Act::PrintTimeout => return Flow::TimedOut,
        Act::Fail(failure) => return Flow::Failed(failure.clone()),
        Act::Structured(value) => turn.structured = Some(value.clone()),
        Act::NoStructured => turn.no_structured = true,
        Act::Envelope(members) => turn.envelope = members.clone(),
        Act::Exit(code) => turn.exit = Some(*code),
    }
    Flow::Next
}

fn tool(name: &str, parameters: Value, output: &str) -> Value {
    json!({
        "tool_name": name,
        "tool_info": { "name": name, "parameters": parameters, "output": output },
        "duration_seconds": 0.01,
    })
}

/// A change of the workspace, if it is allowed.
fn writing(turn: &mut Turn, action: &str, parameters: Value, change: impl FnOnce(&Turn)) -> Flow {
    if !turn.permissions.write() {
        let what = parameters["path"].as_str().unwrap_or_default().to_owned();
        return denied(turn, action, &what);
    }
    change(turn);
    turn.step("tool", tool("write_to_file", parameters, "written"));
    Flow::Next
}

fn write(turn: &Turn, path: &str, content: &str) {
    let path = turn.workspace.join(path);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).expect("a folder for the file");
    }
    std::fs::write(path, content).expect("the file can be written");
}

/// Something was not allowed: told in the way of the version.
fn denied(turn: &mut Turn, action: &str, what: &str) -> Flow {
    let notice = format!(
        "a tool required the \"{action}\" permission that headless mode cannot prompt for, so it was auto-denied"
    );
    let mut facts = tool(action, json!({ "target": what }), "");
    facts["tool_info"]["error"] = json!({ "type": "permission_denied", "message": notice });
    turn.step("tool", facts);
    turn.denied.push(action.to_owned());
    match Shape::of(turn.version) {
        Shape::QuietEnd => {
            eprintln!("{notice}");
            Flow::Denied
        }
        Shape::Failure => {
            eprintln!("permission check failed for {action}: user denied permission");
            Flow::Denied
        }
        Shape::Notice => {
            eprintln!("{notice}");
            Flow::Next
        }
        Shape::Listed => Flow::Next,
    }
}

fn call(turn: &mut Turn, name: &str, arguments: &Value) -> Flow {
    let Some(server) = turn.servers.first_mut() else {
        turn.record.push("calls", json!({ "tool": name, "answer": null }));
        turn.say(&format!("There is no tool {name}.\n"));
        return Flow::Next;
    };
    if !turn.permissions.server_tool(&server.name, name, &server.enabled) {
        let action = format!("mcp({}/{name})", server.name);
        return denied(turn, &action, name);
    }
    let answer = server.call(name, arguments);
    turn.record.push("calls", json!({ "tool": name, "answer": answer }));
    turn.step("tool", tool(name, arguments.clone(), &answer));
    turn.say(&format!("{name} said: {answer}\n"));
    Flow::Next
}

fn hold_stdout() {
    let own = std::env::current_exe().expect("a path of its own");
    let mut holder = Command::new(own);
    holder.env(HOLDER, "1").stdin(Stdio::null()).stderr(Stdio::null());
    drop(holder.spawn().expect("a child"));
}

fn huge(turn: &Turn, bytes: u64) {
    let block = [b'x'; 64 << 10];
    let mut left = bytes;
    while left > 0 {
        let part = left.min(block.len() as u64);
        turn.output.raw(&block[..usize::try_from(part).expect("a block")]);
        left -= part;
    }
    turn.output.raw(b"\n");
}

/// The subcommand `models`: asks its service, and is answered or not.
pub fn models(scenario: &Scenario, number: usize) -> i32 {
    for act in acts_of(&scenario.probes, number) {
        match act {
            Act::Stderr(line) => eprintln!("{line}"),
            Act::Stdout(text) => print!("{text}"),
            Act::SleepMs(time) => std::thread::sleep(Duration::from_millis(*time)),
            Act::LoginPrompt(_) => eprintln!("authentication required. Run 'agy' to log in, then retry"),
            Act::Hang => std::thread::sleep(Duration::from_secs(600)),
            Act::Exit(code) | Act::Vanish(code) => return *code,
            Act::Say(_) => {}
            other => panic!("`models` cannot do {other:?}"),
        }
    }
    if scenario.version() < Version(1, 1, 11) {
        // A table for people.
        for line in scenario.models.lines() {
            println!("  {}", line.replace('\t', "    "));
        }
    } else {
        print!("{}", scenario.models);
    }
    0
}
