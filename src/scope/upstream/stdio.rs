//! A server that is a program: it is started for the run, talked with line by line, and its whole tree ends with it.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use super::{Line, MAX_MESSAGE, reply_to, result_of};
use crate::process::{Dialogue, DialogueLimits, Heard, ProcessError, Program, Sayer};
use crate::scope::Cancel;

/// How soon an end is noticed while the program is silent.
const LOOK: Duration = Duration::from_millis(50);
/// What it gets to end by itself.
const PATIENCE: Duration = Duration::from_millis(500);
const LIMITS: DialogueLimits =
    DialogueLimits { max_line: MAX_MESSAGE, max_output: 1 << 30, stderr_tail: 4 << 10 };

type Answered = Result<Map<String, Value>, String>;

/// Who waits for which answer.
#[derive(Default)]
struct Waiting {
    calls: HashMap<u64, Sender<Answered>>,
    /// Why there will be no more answers.
    over: Option<String>,
    /// The program is to be ended.
    enough: bool,
}

/// A program at the other end of a pipe.
pub(super) struct Pipe {
    sayer: Mutex<Option<Sayer>>,
    waiting: Arc<Mutex<Waiting>>,
    listener: Mutex<Option<JoinHandle<String>>>,
}

impl Pipe {
    pub(super) fn start(program: &Program) -> Result<Self, ProcessError> {
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let (shared, program) = (Arc::clone(&waiting), program.clone());
        let failed = |source| ProcessError::SpawnFailed { program: program.program.clone(), source };
        let (started, result) = channel();
        let its_own = program.clone();
        // A program may end with the thread that started it, so that is the one that listens to it.
        let listener = std::thread::Builder::new()
            .name("upstream".into())
            .spawn(move || {
                let dialogue = match Dialogue::start(&its_own, LIMITS, false) {
                    Ok(dialogue) => dialogue,
                    Err(error) => {
                        let _ = started.send(Err(error));
                        return String::new();
                    }
                };
                let _ = started.send(Ok(dialogue.sayer()));
                listen(dialogue, &shared)
            })
            .map_err(failed)?;
        let broken = || failed(std::io::Error::other("starting it broke down"));
        let sayer = result.recv().map_err(|_| broken())??;
        Ok(Self { sayer: Mutex::new(Some(sayer)), waiting, listener: Mutex::new(Some(listener)) })
    }

    fn say(&self, message: &Value) {
        if let Some(sayer) = &*locked(&self.sayer) {
            sayer.say(&message.to_string());
        }
    }

    fn expect(&self, id: u64) -> Result<Receiver<Answered>, String> {
        let mut waiting = locked(&self.waiting);
        if let Some(over) = &waiting.over {
            return Err(over.clone());
        }
        let (sender, answer) = channel();
        waiting.calls.insert(id, sender);
        Ok(answer)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hands every answer to who waits for it; gives the program's last words.
fn listen(mut dialogue: Dialogue, waiting: &Mutex<Waiting>) -> String {
    let over = loop {
        if locked(waiting).enough {
            break "it was ended";
        }
        match dialogue.hear(Instant::now() + LOOK) {
            Heard::Nothing => {}
            Heard::TooMuch => break "it sent too much",
            Heard::Ended => break "it ended",
            Heard::Line(line) => {
                let message = match serde_json::from_slice(&line) {
                    Ok(Value::Object(message)) => message,
                    // Some programs greet on the wrong stream; that is no answer.
                    _ => continue,
                };
                if message.contains_key("method") {
                    if let Some(reply) = reply_to(&message) {
                        dialogue.say(&reply.to_string());
                    }
                } else if let Some(call) =
                    message.get("id").and_then(Value::as_u64).and_then(|id| locked(waiting).calls.remove(&id))
                {
                    let _ = call.send(Ok(message));
                }
            }
        }
    };
    {
        let mut waiting = locked(waiting);
        waiting.over = Some(over.to_owned());
        for (_, call) in waiting.calls.drain() {
            let _ = call.send(Err(over.to_owned()));
        }
    }
    dialogue.end(PATIENCE).stderr_tail
}

impl Line for Pipe {
    fn request(&self, request: &Value, deadline: Instant, cancel: &Cancel) -> Result<Value, String> {
        let id = request.get("id").and_then(Value::as_u64).unwrap_or_default();
        let answer = self.expect(id)?;
        self.say(request);
        let given_up = loop {
            match answer.recv_timeout(LOOK) {
                Ok(answer) => return answer.and_then(result_of),
                Err(RecvTimeoutError::Disconnected) => return Err("it ended".into()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Some(reason) = cancel.reason() {
                break reason;
            }
            if Instant::now() >= deadline {
                break "it took too long";
            }
        };
        locked(&self.waiting).calls.remove(&id);
        Err(given_up.to_owned())
    }

    fn notify(&self, message: &Value) {
        self.say(message);
    }

    fn end(&self) -> Option<String> {
        locked(&self.waiting).enough = true;
        // The program's standard input closes with the last who could speak to it.
        locked(&self.sayer).take();
        let listener = locked(&self.listener).take()?;
        listener.join().ok()
    }
}
