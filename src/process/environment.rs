//! What a worker finds in its environment: enough to work and log in, nothing that is somebody else's.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use crate::context::Context;

/// Names passed on everywhere, if set.
const COMMON: &[&str] = &[
    "PATH",
    "HOME",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TERM",
    "COLORTERM",
    "NO_COLOR",
    "CI",
    "TEMP",
    "TMP",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
];

/// Names passed on on Unix besides: accounts, temporary files, key rings, and the lower-case proxies.
const UNIX: &[&str] = &[
    "USER",
    "LOGNAME",
    "SHELL",
    "TMPDIR",
    "DBUS_SESSION_BUS_ADDRESS",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "__CF_USER_TEXT_ENCODING",
];

/// Beginnings of names passed on on Unix.
const UNIX_PREFIXES: &[&str] = &["XDG_", "LC_"];

/// Names passed on on Windows besides; most programs do not start without some of them.
const WINDOWS: &[&str] = &[
    "PATHEXT",
    "SYSTEMROOT",
    "SYSTEMDRIVE",
    "WINDIR",
    "COMSPEC",
    "OS",
    "USERPROFILE",
    "HOMEDRIVE",
    "HOMEPATH",
    "APPDATA",
    "LOCALAPPDATA",
    "PROGRAMDATA",
    "ALLUSERSPROFILE",
    "PUBLIC",
    "PROGRAMFILES",
    "PROGRAMFILES(X86)",
    "PROGRAMW6432",
    "COMMONPROGRAMFILES",
    "COMMONPROGRAMFILES(X86)",
    "COMMONPROGRAMW6432",
    "USERNAME",
    "USERDOMAIN",
    "COMPUTERNAME",
    "NUMBER_OF_PROCESSORS",
    "PROCESSOR_ARCHITECTURE",
    "LC_ALL",
];

/// Set by hosts for what they start. A worker that sees them refuses to run, joins the host's session, or trusts a
/// folder's own settings and hooks.
const MARKERS: &[&str] = &[
    "CLAUDECODE",
    "CLAUDE_PROJECT_DIR",
    "CLAUDE_PLUGIN_ROOT",
    "CLAUDE_PLUGIN_DATA",
    "CLAUDE_ENV_FILE",
    "CLAUDE_SESSION_ID",
    "AI_AGENT",
    "GEMINI_CLI",
    "GEMINI_CLI_TRUST_WORKSPACE",
    "GEMINI_CLI_NO_RELAUNCH",
    "CODEX_THREAD_ID",
    "CODEX_INTERNAL_ORIGINATOR_OVERRIDE",
    "CODEX_MANAGED_BY_NPM",
    "CODEX_MANAGED_BY_BUN",
    "QWEN_CODE",
    "OPENCODE",
    "CURSOR_AGENT",
    "CURSOR_TRACE_ID",
];

const MARKER_PREFIXES: &[&str] = &["CLAUDE_CODE_", "CODEX_SANDBOX", "AGENT_BRIDGE_"];

/// Settings of Claude Code that share the markers' prefix: credentials, providers and limits that a user
/// sets on purpose. Passed only when named. A list of what is harmless, since the prefix also has
/// settings that lift permissions or choose what runs.
const CLAUDE_SETTINGS: &[&str] = &[
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_SKIP_BEDROCK_AUTH",
    "CLAUDE_CODE_SKIP_VERTEX_AUTH",
    "CLAUDE_CODE_SKIP_FOUNDRY_AUTH",
    "CLAUDE_CODE_API_KEY_HELPER_TTL_MS",
    "CLAUDE_CODE_CLIENT_CERT",
    "CLAUDE_CODE_CLIENT_KEY",
    "CLAUDE_CODE_CLIENT_KEY_PASSPHRASE",
    "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
    "CLAUDE_CODE_MAX_RETRIES",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
    "CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS",
    "CLAUDE_CODE_EFFORT_LEVEL",
    "CLAUDE_CODE_SUBAGENT_MODEL",
];

/// Variables that change which code runs, where a program finds its home, or what Git starts.
const DENIED: &[&str] = &[
    "PATH",
    "PATHEXT",
    "HOME",
    "USERPROFILE",
    "HOMEDRIVE",
    "HOMEPATH",
    "SHELL",
    "COMSPEC",
    "SYSTEMROOT",
    "SYSTEMDRIVE",
    "WINDIR",
    "APPDATA",
    "LOCALAPPDATA",
    "NODE_OPTIONS",
    "NODE_PATH",
    "NODE_REPL_EXTERNAL_MODULE",
    "NODE_COMPILE_CACHE",
    "NODE_TLS_REJECT_UNAUTHORIZED",
    "ELECTRON_RUN_AS_NODE",
    "BASH_ENV",
    "ENV",
    "ZDOTDIR",
    "FPATH",
    "CDPATH",
    "IFS",
    "PS4",
    "PROMPT_COMMAND",
    "SHELLOPTS",
    "BASHOPTS",
    "RUBYOPT",
    "RUBYLIB",
    "PERL5OPT",
    "PERL5LIB",
    "PERL5DB",
    "PERLLIB",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "CLASSPATH",
    "PAGER",
    "MANPAGER",
    "EDITOR",
    "VISUAL",
    "BROWSER",
    "LESSOPEN",
    "LESSCLOSE",
    "SSH_ASKPASS",
    "SUDO_ASKPASS",
    "GCONV_PATH",
    "LOCPATH",
    "NLSPATH",
    "GLIBC_TUNABLES",
    "OPENSSL_CONF",
    "OPENSSL_ENGINES",
    "OPENSSL_MODULES",
    "SSLKEYLOGFILE",
    "TERMINFO",
    "TERMINFO_DIRS",
    "TERMCAP",
    "RUSTC",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTFLAGS",
    "MAKEFLAGS",
    "COR_PROFILER",
    "COR_ENABLE_PROFILING",
    "CORECLR_PROFILER",
    "CORECLR_ENABLE_PROFILING",
    "DOTNET_STARTUP_HOOKS",
    "__COMPAT_LAYER",
];

const DENIED_PREFIXES: &[&str] = &[
    "LD_",
    "DYLD_",
    "PYTHON",
    "GIT_",
    "NPM_CONFIG_",
    "BUN_",
    "DENO_",
    "BASH_FUNC_",
    "CARGO_TARGET_",
    "XDG_",
];

const NETWORK: &[&str] = &[
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
];

/// Names the script of the scripted agent. The one variable of ours that a config may set for an agent: it
/// turns this program, started as that agent, into the agent's stand-in.
pub const STAND_IN_SCRIPT_VAR: &str = "AGENT_BRIDGE_MOCK_SCRIPT";

/// The environment of a worker: the allowlisted names, then those in `pass`, as far as they are set
/// here, then `set` over both. Host markers never come from here, listed or not.
pub fn worker_environment(
    context: &Context,
    pass: &[String],
    set: &BTreeMap<String, String>,
) -> BTreeMap<OsString, OsString> {
    build(&context.env, cfg!(windows), pass, set)
}

fn build(
    env: &BTreeMap<OsString, OsString>,
    windows: bool,
    pass: &[String],
    set: &BTreeMap<String, String>,
) -> BTreeMap<OsString, OsString> {
    let same = |a: &str, b: &str| if windows { a.eq_ignore_ascii_case(b) } else { a == b };
    let mut result: BTreeMap<OsString, OsString> = env
        .iter()
        .filter(|(name, _)| {
            // A name that is not Unicode cannot be on a list.
            let Some(name) = name.to_str() else { return false };
            let listed = pass.iter().any(|wanted| same(wanted, name));
            if is_claude_setting(name) {
                listed
            } else {
                !is_marker(name) && (listed || allowed(name, windows))
            }
        })
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    for (name, value) in set {
        if windows {
            result.retain(|known, _| !known.to_string_lossy().eq_ignore_ascii_case(name));
        }
        result.insert(name.into(), value.into());
    }
    result
}

/// Whether every worker on this system gets this variable, if it is set.
pub fn is_passed_anyway(name: &str) -> bool {
    !is_marker(name) && allowed(name, cfg!(windows))
}

fn allowed(name: &str, windows: bool) -> bool {
    if windows {
        let is = |listed: &&str| listed.eq_ignore_ascii_case(name);
        COMMON.iter().any(is) || WINDOWS.iter().any(is)
    } else {
        COMMON.contains(&name)
            || UNIX.contains(&name)
            || UNIX_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    }
}

fn is_marker(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    MARKERS.contains(&name.as_str()) || MARKER_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

fn is_claude_setting(name: &str) -> bool {
    CLAUDE_SETTINGS.contains(&name.to_ascii_uppercase().as_str())
}

/// Whether a config may neither set this variable for an agent nor hand it on: it would change which program runs, where
/// it looks for its files, or what it believes to run under. Also names that no system takes.
pub fn denied_extra_env(name: &str) -> bool {
    let malformed = name.is_empty() || name.contains(['=', '\0']) || name.chars().any(char::is_control);
    let upper = name.to_ascii_uppercase();
    malformed
        || DENIED.contains(&upper.as_str())
        || DENIED_PREFIXES.iter().any(|prefix| upper.starts_with(prefix))
        || (is_marker(&upper) && !is_claude_setting(&upper))
}

/// The variables that decide whether a worker reaches its provider.
pub fn network_variables() -> &'static [&'static str] {
    NETWORK
}

/// Those of [`network_variables`] that are not set here (hosts often drop them). Names only.
pub fn absent_network_variables(context: &Context) -> Vec<&'static str> {
    let set = |name: &str| context.var(name).is_some_and(|value: &OsStr| !value.is_empty());
    NETWORK.iter().filter(|name| !set(name) && !set(&name.to_ascii_lowercase())).copied().collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::context::Clock;
    use proptest::prelude::*;

    fn env(pairs: &[(&str, &str)]) -> BTreeMap<OsString, OsString> {
        pairs.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect()
    }

    fn names(env: &BTreeMap<OsString, OsString>) -> Vec<String> {
        env.keys().map(|name| name.to_string_lossy().into_owned()).collect()
    }

    fn none() -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    #[test]
    fn what_logins_and_networks_need_is_passed_and_secrets_are_not() {
        let here = env(&[
            ("PATH", "/bin"),
            ("USER", "u"),
            ("XDG_RUNTIME_DIR", "/run"),
            ("https_proxy", "p"),
            ("SSL_CERT_DIR", "d"),
            ("LC_CTYPE", "C"),
            ("OPENAI_API_KEY", "secret"),
            ("AWS_SECRET_ACCESS_KEY", "s"),
            ("SSH_AUTH_SOCK", "s"),
            ("path", "x"),
        ]);
        let worker = build(&here, false, &[], &none());
        assert_eq!(
            names(&worker),
            ["LC_CTYPE", "PATH", "SSL_CERT_DIR", "USER", "XDG_RUNTIME_DIR", "https_proxy"]
        );
        let worker = build(&here, false, &["OPENAI_API_KEY".into(), "NOT_SET".into()], &none());
        assert_eq!(worker.get(OsStr::new("OPENAI_API_KEY")), Some(&OsString::from("secret")));
        assert!(!worker.contains_key(OsStr::new("NOT_SET")));
    }

    #[test]
    fn host_markers_never_pass_even_if_listed() {
        let markers = [
            "CLAUDECODE",
            "CLAUDE_CODE_ENTRYPOINT",
            "CLAUDE_CODE_SESSION_ACCESS_TOKEN",
            "CLAUDE_PROJECT_DIR",
            "AI_AGENT",
            "GEMINI_CLI",
            "CODEX_SANDBOX",
            "CODEX_SANDBOX_NETWORK_DISABLED",
            "AGENT_BRIDGE_DEPTH",
        ];
        let here: BTreeMap<OsString, OsString> =
            markers.iter().map(|name| (name.into(), "1".into())).collect();
        let pass: Vec<String> = markers.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(names(&build(&here, false, &pass, &none())), Vec::<String>::new());
        assert_eq!(names(&build(&here, true, &pass, &none())), Vec::<String>::new());
    }

    #[test]
    fn a_claude_credential_passes_only_by_name() {
        let here = env(&[("CLAUDE_CODE_OAUTH_TOKEN", "t"), ("CLAUDE_CONFIG_DIR", "d")]);
        assert!(build(&here, false, &[], &none()).is_empty());
        let pass = ["CLAUDE_CODE_OAUTH_TOKEN".to_owned(), "CLAUDE_CONFIG_DIR".to_owned()];
        assert_eq!(build(&here, false, &pass, &none()).len(), 2);
    }

    #[test]
    fn windows_names_have_no_case() {
        let here = env(&[
            ("Path", "C:\\"),
            ("SystemRoot", "C:\\Windows"),
            ("ProgramFiles(x86)", "p"),
            ("My_Key", "k"),
        ]);
        let set = BTreeMap::from([("PATH".to_owned(), "D:\\".to_owned())]);
        let worker = build(&here, true, &["my_key".into()], &set);
        assert_eq!(names(&worker), ["My_Key", "PATH", "ProgramFiles(x86)", "SystemRoot"]);
        assert_eq!(worker.get(OsStr::new("PATH")), Some(&OsString::from("D:\\")));
    }

    #[test]
    fn what_is_set_wins() {
        let set = BTreeMap::from([
            ("LANG".to_owned(), "C".to_owned()),
            ("AGENT_BRIDGE_DEPTH".to_owned(), "1".to_owned()),
        ]);
        let worker = build(&env(&[("LANG", "de")]), false, &[], &set);
        assert_eq!(worker, env(&[("LANG", "C"), ("AGENT_BRIDGE_DEPTH", "1")]));
    }

    #[test]
    fn variables_that_choose_code_are_denied() {
        for name in [
            "PATH",
            "path",
            "LD_PRELOAD",
            "DYLD_INSERT_LIBRARIES",
            "NODE_OPTIONS",
            "BASH_ENV",
            "PYTHONPATH",
            "GIT_SSH_COMMAND",
            "HOME",
            "",
            "A=B",
            "A\0",
            "CLAUDECODE",
            "GEMINI_CLI_TRUST_WORKSPACE",
            "AGENT_BRIDGE_DEPTH",
            "npm_config_script_shell",
            "CLAUDE_CODE_SHELL_PREFIX",
            "CLAUDE_CODE_EVEN_MORE_DANGEROUSLY_SKIP_PERMISSIONS",
        ] {
            assert!(denied_extra_env(name), "{name:?}");
        }
        for name in [
            "CODEX_HOME",
            "HTTPS_PROXY",
            "RUST_LOG",
            "CLAUDE_CODE_USE_BEDROCK",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
            "ANTHROPIC_BASE_URL",
        ] {
            assert!(!denied_extra_env(name), "{name:?}");
        }
    }

    #[test]
    fn absent_network_variables_are_named_and_lower_case_counts() {
        let context = Context {
            env: env(&[("https_proxy", "http://p"), ("SSL_CERT_FILE", "/f"), ("HTTP_PROXY", "")]),
            home: None,
            cwd: "/".into(),
            exe: "/x".into(),
            clock: Clock::System,
        };
        assert_eq!(
            absent_network_variables(&context),
            ["HTTP_PROXY", "NO_PROXY", "ALL_PROXY", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"]
        );
    }

    proptest! {
        #[test]
        fn nothing_unlisted_ever_passes(name in "[A-Z_]{1,20}") {
            let worker = build(&env(&[(&name, "v")]), false, &[], &none());
            let known = COMMON.contains(&name.as_str()) || UNIX.contains(&name.as_str())
                || name.starts_with("XDG_") || name.starts_with("LC_");
            prop_assert_eq!(!worker.is_empty(), known);
        }
    }
}
