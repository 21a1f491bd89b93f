//! Whether an agent's login works, asked before a run of an agent whose runs would wait for a person without one.
//!
//! One question at a time on a state folder, whoever asks, this process or another: a lock says whose turn it is, and
//! who waited for it takes the answer that was given meanwhile. Only success is kept, for a minute, and the success of a
//! real run counts as one. What may be slow (a key ring, a service) is asked once more; a login that waits for a person
//! is ended at once.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::run_folder::RunFolder;
use crate::agents::{self, Agent, Failure, LoginAnswer, LoginQuestion, RunEnd, redaction};
use crate::config::AgentConfig;
use crate::context::Context;
use crate::digest;
use crate::error::Result;
use crate::platform::{self, LockFile};
use crate::policy::AgentId;
use crate::process::{self, Limits, PoliteStop, Program, RunIo, Stopped};

/// How long a success is good for, in milliseconds of the wall clock.
const FRESH_MS: i64 = 60_000;
/// A success that is not older makes a login prompt doubtful: some versions print it and find their login two
/// seconds later.
const RECENT_MS: i64 = 600_000;
/// Bound of one question.
const LIMIT: Duration = Duration::from_secs(25);
/// Between a question and the next; doubled each time.
const BACKOFF: Duration = Duration::from_secs(1);
/// A question takes two limits at most, and some for starting.
const PATIENCE: Duration = Duration::from_secs(90);
/// Most bytes of an answer.
const ANSWER_BYTES: usize = 64 << 10;
/// Longest detail, in characters.
const DETAIL_CHARS: usize = 300;
/// The folder in the state folder.
const FOLDER: &str = "preflight";

/// What it takes to ask: everything that a run of the agent would have, but for the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginCheck {
    agent: AgentId,
    program: PathBuf,
    version: Option<String>,
    user_config: bool,
    env: std::collections::BTreeMap<String, String>,
    pass_env: Vec<String>,
}

impl LoginCheck {
    /// For an agent with these settings; none for an agent that needs no such question.
    pub fn of(
        context: &Context,
        agent: &dyn Agent,
        settings: &AgentConfig,
        version: Option<&str>,
    ) -> Option<Self> {
        let homes = agent.home_variables().iter().map(|name| (*name).to_owned());
        agent.login_question().map(|_| Self {
            agent: agent.id(),
            program: agent.program(settings, &context.exe),
            version: version.map(str::to_owned),
            user_config: settings.use_user_config,
            env: settings.extra_env.clone(),
            pass_env: settings.pass_env.iter().cloned().chain(homes).collect(),
        })
    }

    /// Tells one login from another. Values of variables are in it only as a digest.
    fn key(&self) -> String {
        digest::of_bytes(format!("{self:?}").as_bytes())
    }
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// The login works, or nothing says that it does not.
    Ready,
    /// A run would fail.
    Refused(Refused),
    /// The caller had it stopped, for this reason.
    Stopped(String),
}

/// Why a run would fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The cause: [`Failure::LoginRequired`], [`Failure::AuthTimeout`] or [`Failure::KeyringTimeout`].
    pub failure: Failure,
    /// One line, free of secrets.
    pub detail: String,
    /// What to do.
    pub hint: String,
}

/// What the state folder knows of an agent's login.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Known {
    /// Of [`LoginCheck::key`].
    key: String,
    /// How many questions were answered so far.
    answers: u64,
    /// The last answer; none if it was unclear.
    refused: Option<Refused>,
    last_success_ms: Option<i64>,
}

impl Known {
    fn success_within(&self, span: i64, now: i64) -> bool {
        // A success in the future is of a clock that was set back.
        self.last_success_ms.is_some_and(|at| (0..span).contains(&now.saturating_sub(at)))
    }
}

/// Asks for one login.
#[derive(Clone)]
pub struct Preflight<'a> {
    context: &'a Context,
    check: &'a LoginCheck,
    folder: PathBuf,
    limit: Duration,
    backoff: Duration,
}

/// Asked every few milliseconds: a reason to stop.
type Stop<'s> = &'s mut dyn FnMut() -> Option<String>;

impl<'a> Preflight<'a> {
    /// On this state folder, which need not exist yet.
    pub fn new(context: &'a Context, state_dir: &Path, check: &'a LoginCheck) -> Self {
        Self { context, check, folder: state_dir.join(FOLDER), limit: LIMIT, backoff: BACKOFF }
    }

    /// With another bound of a question, and another pause before it is repeated.
    #[must_use]
    pub fn bounded(self, limit: Duration, backoff: Duration) -> Self {
        Self { limit, backoff, ..self }
    }

    /// Whether the login works: by a success of the last minute, by the answer to a question that somebody is asking, or
    /// by asking.
    ///
    /// # Errors
    /// If the state folder cannot be written or the program cannot be started.
    pub fn ask(&self, stop: Stop<'_>) -> Result<Readiness> {
        let seen = self.known();
        if seen.success_within(FRESH_MS, self.now()) {
            return Ok(Readiness::Ready);
        }
        self.take_turn(seen.answers, stop)
    }

    /// The same for a run that was ended because it showed a login prompt: a success before it says nothing any
    /// more. It is final unless the last success is recent and the run had not done anything yet (`tool_ran`).
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn ask_again(&self, tool_ran: bool, stop: Stop<'_>) -> Result<Readiness> {
        if tool_ran || !self.known().success_within(RECENT_MS, self.now()) {
            return Ok(Readiness::Refused(
                self.refused(Failure::LoginRequired, "the run was asked to log in"),
            ));
        }
        self.take_turn(self.known().answers, stop)
    }

    /// Asks, or takes the answer that was given since `seen` answers were known.
    fn take_turn(&self, seen: u64, stop: Stop<'_>) -> Result<Readiness> {
        let lock = match self.my_turn(stop)? {
            Ok(lock) => lock,
            Err(instead) => return Ok(instead),
        };
        let known = self.known();
        if known.answers != seen {
            return Ok(known.refused.map_or(Readiness::Ready, Readiness::Refused));
        }
        self.question(&lock, known, stop)
    }

    /// A run has just ended well: its login works.
    ///
    /// # Errors
    /// If it cannot be written down. If somebody is asking, there is no need to.
    pub fn note_success(&self) -> Result<()> {
        self.prepare()?;
        let Some(_lock) = platform::try_exclusive(&self.lock_path())? else { return Ok(()) };
        let known = self.known();
        self.keep(&Known { last_success_ms: Some(self.now()), ..known })
    }

    fn now(&self) -> i64 {
        self.context.clock.now_ms()
    }

    fn file(&self, ending: &str) -> PathBuf {
        self.folder.join(format!("{}.{ending}", self.check.agent))
    }

    fn lock_path(&self) -> PathBuf {
        self.file("lock")
    }

    fn prepare(&self) -> Result<()> {
        Ok(platform::create_private_dir(&self.folder)?)
    }

    /// What cannot be read is not known, and of another login nothing is.
    fn known(&self) -> Known {
        let bytes = std::fs::read(self.file("json")).unwrap_or_default();
        let known: Known = serde_json::from_slice(&bytes).unwrap_or_default();
        let key = self.check.key();
        if known.key == key {
            return known;
        }
        Known { key, answers: known.answers, ..Known::default() }
    }

    fn keep(&self, known: &Known) -> Result<()> {
        let bytes = serde_json::to_vec(known).unwrap_or_default();
        Ok(platform::write_durable(&self.file("json"), &bytes, 0o600)?)
    }

    /// Waits until nobody else is asking.
    fn my_turn(&self, stop: Stop<'_>) -> Result<std::result::Result<LockFile, Readiness>> {
        self.prepare()?;
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(lock) = platform::wait_exclusive(&self.lock_path(), Duration::from_millis(100))? {
                return Ok(Ok(lock));
            }
            if let Some(reason) = stop() {
                return Ok(Err(Readiness::Stopped(reason)));
            }
            if Instant::now() >= until {
                let why = "another process has been asking for the login for too long";
                return Ok(Err(Readiness::Refused(self.refused(Failure::AuthTimeout, why))));
            }
        }
    }

    /// Asks, at most twice, and writes the answer down for those who wait.
    fn question(&self, _lock: &LockFile, known: Known, stop: Stop<'_>) -> Result<Readiness> {
        let mut asked = self.once(stop)?;
        if let Ok(LoginAnswer::Fails(failure, _)) = &asked
            && (failure.is_transient()
                || (*failure == Failure::LoginRequired && known.success_within(RECENT_MS, self.now())))
        {
            let end = Instant::now() + backoff(self.backoff, 0, random());
            while Instant::now() < end {
                if let Some(reason) = stop() {
                    return Ok(Readiness::Stopped(reason));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            asked = self.once(stop)?;
        }
        let mut known = Known { answers: known.answers.wrapping_add(1), refused: None, ..known };
        let readiness = match asked {
            Err(reason) => return Ok(Readiness::Stopped(reason)),
            Ok(LoginAnswer::Works) => {
                known.last_success_ms = Some(self.now());
                Readiness::Ready
            }
            // A run will say more.
            Ok(LoginAnswer::Unclear) => Readiness::Ready,
            Ok(LoginAnswer::Fails(failure, why)) => {
                let refused = self.refused(failure, &why);
                known.refused = Some(refused.clone());
                Readiness::Refused(refused)
            }
        };
        self.keep(&known)?;
        Ok(readiness)
    }

    fn refused(&self, failure: Failure, why: &str) -> Refused {
        let command = agents::agent(self.check.agent).map_or("", |agent| agent.login_command());
        let hint = match failure {
            Failure::LoginRequired => format!("Run `{command}` in a terminal and log in, then try again."),
            Failure::KeyringTimeout => {
                "Unlock the key ring of this session (or log in to the desktop), then try again.".to_owned()
            }
            _ => format!("Try again in a moment; if it stays so, run `{command}` in a terminal."),
        };
        Refused { failure, detail: redaction::one_line(why, DETAIL_CHARS), hint }
    }

    /// One start of the program, in a private folder that is gone after it. Inside, the reason for which it was
    /// stopped, if it was.
    fn once(&self, stop: Stop<'_>) -> Result<std::result::Result<LoginAnswer, String>> {
        let agent = agents::require(self.check.agent)?;
        let Some(question) = agent.login_question() else { return Ok(Ok(LoginAnswer::Unclear)) };
        let place = self.folder.join(format!("{}-probe", self.check.agent));
        // Nobody else asks, so what lies there is of somebody who died.
        platform::remove_durable(&place)?;
        let folder = RunFolder::at(place.clone())?;
        let launch = question.launch(self.check.version.as_deref(), self.check.user_config, &place)?;
        let mut env = launch.env;
        env.extend(self.check.env.clone());
        let env = process::worker_environment(self.context, &self.check.pass_env, &env);
        folder.fill(&launch.private.unwrap_or_default(), "", self.context.home.as_deref())?;
        let resolved = super::probe::resolve(agent, &self.check.program, self.context)?;
        let program = Program {
            program: resolved.program,
            args: resolved.prefix_args.into_iter().chain(launch.args.into_iter().map(Into::into)).collect(),
            cwd: place,
            env,
            stdin: Vec::new(),
        };
        let (report, stdout) = self.run(question, &program, stop)?;
        let end = RunEnd {
            exit_code: report.exit_code,
            signal: report.signal,
            stderr_tail: &report.stderr_tail,
            stdout_bytes: report.stdout_bytes,
            log_tail: &folder.log_tail(),
        };
        Ok(match report.stopped {
            Some(Stopped::Cancelled(reason)) => Err(reason),
            Some(Stopped::Fatal(line)) => Ok(LoginAnswer::Fails(Failure::LoginRequired, line)),
            stopped => Ok(question.answer(&end, &stdout, stopped.is_none())),
        })
    }

    fn run(
        &self,
        question: &dyn LoginQuestion,
        program: &Program,
        stop: Stop<'_>,
    ) -> Result<(process::Report, String)> {
        let limits = Limits {
            start: None,
            idle: None,
            run: self.limit,
            grace: Duration::from_millis(500),
            drain: Duration::from_millis(500),
            max_line: ANSWER_BYTES,
            max_output: (ANSWER_BYTES as u64) * 4,
            stderr_tail: 8 << 10,
        };
        let mut stdout = String::new();
        let waits = |line: &[u8]| {
            let text = String::from_utf8_lossy(line);
            question.is_prompt(&text).then(|| redaction::one_line(&text, DETAIL_CHARS))
        };
        let mut on_line = |line: &[u8]| {
            stdout.push_str(&String::from_utf8_lossy(line));
            stdout.push('\n');
            waits(line)
        };
        let io = RunIo {
            stdout_file: None,
            stderr_file: None,
            on_started: &mut |_| {},
            on_line: &mut on_line,
            on_error_line: &mut |line| waits(line),
            on_tick: &mut |_| stop(),
        };
        let report = process::run(program, &limits, PoliteStop::TerminateGroup, io)?;
        Ok((report, stdout))
    }
}

/// The pause before the n-th repetition (from 0): doubled each time, and a fifth more or less, so that many who wait do
/// not come back together.
fn backoff(base: Duration, repetition: u32, random: u8) -> Duration {
    let doubled = base.saturating_mul(2_u32.saturating_pow(repetition));
    doubled.mul_f64(0.8 + 0.4 * f64::from(random) / 255.0)
}

fn random() -> u8 {
    let mut byte = [128];
    // Without randomness the pause is the middle one.
    let _ = getrandom::fill(&mut byte);
    byte[0]
}

#[cfg(test)]
#[path = "preflight_tests.rs"]
mod tests;
