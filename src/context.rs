//! Everything a command takes from outside: environment, home, working folder, own path, clock.
//!
//! There is no global state; tests build a [`Context`] by hand.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// For tests only: sets the wall clock off by that many milliseconds (`-3600000`), or only once the process has
/// run for a while (`-3600000@1500`: after 1.5 s). Deadlines do not follow it.
const CLOCK_OFFSET_VAR: &str = "AGENT_BRIDGE_TEST_CLOCK_OFFSET_MS";

/// The world around one run of the program.
#[derive(Clone, Debug)]
pub struct Context {
    /// Environment variables. On Windows names are compared without case.
    pub env: BTreeMap<OsString, OsString>,
    /// The user's home folder, if there is one that can be used.
    pub home: Option<PathBuf>,
    /// Working folder at start.
    pub cwd: PathBuf,
    /// Path of the running program.
    pub exe: PathBuf,
    /// Wall clock, in milliseconds since 1970. Never used for deadlines.
    pub clock: Clock,
}

/// A wall clock that tests can set.
#[derive(Clone, Copy, Debug)]
pub enum Clock {
    /// The machine's clock.
    System,
    /// Always this time (milliseconds since 1970).
    Fixed(i64),
    /// The machine's clock, set off from some moment on.
    Shifted {
        /// Milliseconds that are added.
        by: i64,
        /// From when on.
        from: Instant,
    },
}

impl Clock {
    /// Milliseconds since 1970; 0 if the machine's clock is before that.
    pub fn now_ms(self) -> i64 {
        match self {
            Self::Fixed(ms) => ms,
            Self::Shifted { by, from } => {
                let now = Self::System.now_ms();
                if Instant::now() >= from { now.saturating_add(by).max(0) } else { now }
            }
            Self::System => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .ok()
                .and_then(|d| i64::try_from(d.as_millis()).ok())
                .unwrap_or(0),
        }
    }
}

/// Reads [`CLOCK_OFFSET_VAR`]; a value that cannot be read sets nothing off.
fn clock(offset: Option<&str>) -> Clock {
    let shifted = || {
        let text = offset?;
        let (by, after) = text.split_once('@').unwrap_or((text, "0"));
        let from = Instant::now().checked_add(Duration::from_millis(after.parse().ok()?))?;
        Some(Clock::Shifted { by: by.parse().ok()?, from })
    };
    shifted().unwrap_or(Clock::System)
}

impl Context {
    /// Takes everything from the running process.
    pub fn from_process() -> Self {
        let env: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
        let mut context = Self {
            env,
            home: None,
            cwd: std::env::current_dir().unwrap_or_else(|_| PathBuf::from(".")),
            exe: std::env::current_exe().unwrap_or_else(|_| PathBuf::from("agent-bridge")),
            clock: Clock::System,
        };
        context.clock = clock(context.text_var(CLOCK_OFFSET_VAR));
        let name = if cfg!(windows) { "USERPROFILE" } else { "HOME" };
        context.home = context
            .var(name)
            .or_else(|| context.var("HOME"))
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
            .filter(|path| path.is_absolute());
        context
    }

    /// One environment variable, as the operating system would find it.
    pub fn var(&self, name: &str) -> Option<&OsStr> {
        if cfg!(windows) {
            self.env
                .iter()
                .find(|(key, _)| key.to_string_lossy().eq_ignore_ascii_case(name))
                .map(|(_, value)| value.as_os_str())
        } else {
            self.env.get(OsStr::new(name)).map(OsString::as_os_str)
        }
    }

    /// Like [`Self::var`], as text; `None` if unset, empty or not Unicode.
    pub fn text_var(&self, name: &str) -> Option<&str> {
        self.var(name).and_then(OsStr::to_str).filter(|value| !value.is_empty())
    }

    /// `~`, `~/x` and `~\x` become paths below the home folder; anything else is made absolute
    /// against `base`. `None` if the home folder is needed and there is none.
    pub fn expand(&self, text: &str, base: &Path) -> Option<PathBuf> {
        let path = match text.strip_prefix('~') {
            Some("") => self.home.clone()?,
            Some(rest) if rest.starts_with(['/', '\\']) => {
                self.home.as_ref()?.join(rest.trim_start_matches(['/', '\\']))
            }
            _ => PathBuf::from(text),
        };
        Some(if path.is_absolute() { path } else { base.join(path) })
    }
}
