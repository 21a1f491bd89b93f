//! What the changed lines of a file say: calls of the network and of programs, checks that are gone, secrets; and
//! whether the change is one of comments or indentation only. No line is kept.

use memchr::memmem::Finder;

use super::paths::Role;
use super::secrets::looks_secret;

/// Bytes of a line that are looked at.
pub const MAX_LINE: usize = 16 << 10;

/// Something that lines can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// A call of the network.
    Network,
    /// A call that starts programs or runs text as code.
    Programs,
    /// An assertion.
    Assertion,
    /// A test that is not run.
    DisabledTest,
    /// A checker that is told to be silent.
    CheckOff,
    /// Certificates or signatures that are not verified.
    VerificationOff,
}

const SIGNALS: usize = 6;

/// Texts that say it. Those that begin with a letter are looked for at the beginning of a word only.
const TEXTS: [(Signal, &[&str]); SIGNALS] = [
    (
        Signal::Network,
        &[
            "reqwest",
            "ureq::",
            "hyper::",
            "TcpStream",
            "TcpListener",
            "UdpSocket",
            "std::net",
            "fetch(",
            "axios",
            "XMLHttpRequest",
            "new WebSocket",
            "http.request(",
            "https.request(",
            "http.get(",
            "https.get(",
            "net.connect(",
            "net.createConnection",
            "dgram.",
            "requests.get",
            "requests.post",
            "requests.put",
            "requests.request",
            "requests.Session",
            "urllib",
            "http.client",
            "socket.socket",
            "aiohttp",
            "httpx.",
            "net/http",
            "http.Get(",
            "http.Post(",
            "http.NewRequest",
            "net.Dial",
            "net.Listen",
            "HttpClient",
            "URLSession",
            "OkHttp",
            "Net::HTTP",
            "open-uri",
            "curl_init",
            "curl ",
            "wget ",
            "Invoke-WebRequest",
            "Invoke-RestMethod",
            "/dev/tcp/",
            "smtplib",
            "ftplib",
            "paramiko",
        ],
    ),
    (
        Signal::Programs,
        &[
            "Command::new",
            "std::process",
            "subprocess",
            "os.system(",
            "os.popen(",
            "os.exec",
            "os.spawn",
            "child_process",
            "execSync(",
            "spawnSync(",
            "execFile(",
            "shell=True",
            "getRuntime().exec",
            "ProcessBuilder",
            "exec.Command",
            "syscall.Exec",
            "ShellExecute",
            "CreateProcess",
            "Process.Start(",
            "eval(",
            "new Function(",
            "exec(",
            "system(",
            "popen(",
            "pickle.loads",
            "yaml.load(",
            "dlopen(",
            "LoadLibrary",
            "| sh",
            "| bash",
            "|sh",
            "|bash",
            "bash -c",
            "sh -c",
            "Invoke-Expression",
            "__import__(",
            "importlib.import_module",
        ],
    ),
    (
        Signal::Assertion,
        &[
            "assert",
            "debug_assert",
            "expect(",
            ".should",
            "EXPECT_",
            "ASSERT_",
            "XCTAssert",
            "require.",
            "t.Error",
            "t.Fatal",
            "t.Fail",
            "prop_assert",
            "Assert.",
            "verify(",
            "self.fail(",
            "self.assert",
            "must_",
        ],
    ),
    (
        Signal::DisabledTest,
        &[
            "#[ignore",
            "@Ignore",
            "@Disabled",
            "pytest.mark.skip",
            "pytest.mark.xfail",
            "unittest.skip",
            "unittest.expectedFailure",
            "pytest.skip(",
            "self.skipTest",
            "it.skip",
            "describe.skip",
            "test.skip",
            "test.fixme",
            "it.only",
            "describe.only",
            "test.only",
            "xit(",
            "xdescribe(",
            "xtest(",
            "t.Skip",
            "[Ignore",
            "Skip =",
            "Skip=",
            "GTEST_SKIP",
            "DISABLED_",
            "XCTSkip",
            "@skip",
            "#[cfg(any())]",
            "test.todo",
        ],
    ),
    (
        Signal::CheckOff,
        &[
            "eslint-disable",
            "@ts-ignore",
            "@ts-nocheck",
            "@ts-expect-error",
            "tslint:disable",
            "noqa",
            "type: ignore",
            "nosec",
            "nosemgrep",
            "#[allow(",
            "#![allow(",
            "nolint",
            "NOLINT",
            "@SuppressWarnings",
            "pylint: disable",
            "rubocop:disable",
            "coverage:ignore",
            "istanbul ignore",
            "pragma: no cover",
            "prettier-ignore",
            "--no-verify",
            "#pragma warning",
            "biome-ignore",
            "phpcs:ignore",
            "swiftlint:disable",
        ],
    ),
    (
        Signal::VerificationOff,
        &[
            "verify=False",
            "verify = False",
            "rejectUnauthorized: false",
            "rejectUnauthorized:false",
            "InsecureSkipVerify",
            "danger_accept_invalid",
            "NODE_TLS_REJECT_UNAUTHORIZED",
            "CURLOPT_SSL_VERIFYPEER",
            "ssl._create_unverified",
            "CERT_NONE",
            "--insecure",
            "http.sslVerify",
            "strict-ssl=false",
            "ServerCertificateCustomValidationCallback",
            "algorithms: [\"none\"]",
            "_no_verify",
        ],
    ),
];

/// Texts that mean something else behind a dot: `regex.exec(` starts no program.
const NO_MEMBERS: &[&str] = &["exec(", "eval(", "system(", "popen("];

/// The texts, ready to be looked for.
pub struct Patterns(Vec<Pattern>);

struct Pattern {
    signal: Signal,
    finder: Finder<'static>,
    /// At the beginning of a word only.
    at_word: bool,
    /// Not behind a dot.
    no_member: bool,
}

impl Default for Patterns {
    fn default() -> Self {
        let mut all = Vec::new();
        for (signal, texts) in TEXTS {
            for text in texts {
                let at_word = text.starts_with(|c: char| c.is_ascii_alphabetic());
                let no_member = NO_MEMBERS.contains(text);
                all.push(Pattern { signal, finder: Finder::new(*text), at_word, no_member });
            }
        }
        Self(all)
    }
}

impl Patterns {
    fn each(&self, line: &[u8], mut seen: impl FnMut(Signal)) {
        let mut found = [false; SIGNALS];
        for Pattern { signal, finder, at_word, no_member } in &self.0 {
            let Some(slot) = found.get_mut(*signal as usize) else { continue };
            if *slot {
                continue;
            }
            let is_start = |at: usize| {
                let Some(before) = at.checked_sub(1).and_then(|at| line.get(at)) else { return true };
                !(*at_word && (before.is_ascii_alphanumeric() || *before == b'_')
                    || *no_member && *before == b'.')
            };
            if finder.find_iter(line).any(is_start) {
                *slot = true;
                seen(*signal);
            }
        }
    }
}

/// What a language takes for a comment, and whether indentation means something in it.
#[derive(Clone, Copy, Debug)]
struct Language {
    line_comments: &'static [&'static str],
    block: Option<(&'static str, &'static str)>,
    indentation_means: bool,
}

fn language(name: &[u8]) -> Language {
    let file = String::from_utf8_lossy(super::names::file_name(name)).to_lowercase();
    let extension = file.rsplit_once('.').map_or("", |(_, extension)| extension);
    let c_block = Some(("/*", "*/"));
    let of = |line_comments, block, indentation_means| Language { line_comments, block, indentation_means };
    match extension {
        "rs" | "c" | "h" | "cc" | "cpp" | "cxx" | "hpp" | "hh" | "m" | "mm" | "go" | "js" | "mjs" | "cjs"
        | "jsx" | "ts" | "mts" | "cts" | "tsx" | "java" | "kt" | "kts" | "scala" | "swift" | "cs"
        | "dart" | "zig" | "sol" | "proto" | "groovy" | "gradle" => of(&["//"], c_block, false),
        "php" => of(&["//", "# "], c_block, false),
        "css" | "scss" | "less" => of(&[], c_block, false),
        "rb" | "sh" | "bash" | "zsh" | "fish" | "pl" | "pm" | "r" | "tf" | "toml" | "ps1" => {
            of(&["#"], None, false)
        }
        "sql" => of(&["--"], c_block, false),
        "lua" => of(&["--"], None, false),
        "py" | "pyi" | "yml" | "yaml" | "nim" | "ex" | "exs" | "jl" => of(&["#"], None, true),
        "hs" => of(&["--"], None, true),
        "html" | "xml" | "svg" | "vue" | "svelte" => of(&[], Some(("<!--", "-->")), false),
        _ => of(&[], None, true),
    }
}

/// Where the facts of one file come together.
pub struct Facts {
    language: Language,
    role: Role,
    counts: [i64; SIGNALS],
    /// An added line looks like a secret.
    pub secret: bool,
    /// Every changed line is a comment or empty.
    comments: bool,
    /// Every hunk has the same lines on both sides but for white space at their ends, and empty lines.
    indentation: bool,
    any: bool,
    removed: Vec<Vec<u8>>,
    added: Vec<Vec<u8>>,
    held: usize,
}

/// Bytes of a hunk that are held to compare its sides; a larger one is no mere indentation.
const MAX_HELD: usize = 256 << 10;

impl Facts {
    /// Of a file with this name.
    pub fn new(name: &[u8], role: Role) -> Self {
        Self {
            language: language(name),
            role,
            counts: [0; SIGNALS],
            secret: false,
            comments: true,
            indentation: true,
            any: false,
            removed: Vec::new(),
            added: Vec::new(),
            held: 0,
        }
    }

    /// A hunk begins.
    pub fn hunk(&mut self) {
        self.end_hunk();
        self.held = 0;
    }

    /// A line of a hunk, without its sign and its end.
    pub fn line(&mut self, patterns: &Patterns, is_added: bool, line: &[u8]) {
        self.any = true;
        let cut = line.len() > MAX_LINE;
        let line = line.get(..MAX_LINE).unwrap_or(line);
        let by = if is_added { 1 } else { -1 };
        if is_added && !self.secret {
            self.secret = looks_secret(line);
        }
        // Text for people talks about calls without making them.
        if self.role != Role::Document {
            patterns.each(line, |signal| {
                if let Some(count) = self.counts.get_mut(signal as usize) {
                    *count += by;
                }
            });
        }
        let trimmed = line.trim_ascii();
        if self.comments && (cut || !(trimmed.is_empty() || self.is_comment(trimmed))) {
            self.comments = false;
        }
        if self.indentation {
            self.held += line.len() + 1;
            if cut || self.held > MAX_HELD {
                self.indentation = false;
                self.removed.clear();
                self.added.clear();
            } else if !trimmed.is_empty() {
                if is_added { &mut self.added } else { &mut self.removed }.push(trimmed.to_vec());
            }
        }
    }

    /// A whole line that is a comment, and orders nothing.
    fn is_comment(&self, trimmed: &[u8]) -> bool {
        let Language { line_comments, block, .. } = self.language;
        let starts = |mark: &str| trimmed.starts_with(mark.as_bytes());
        // The first line of a script, and what compilers read.
        if starts("#!") || starts("//go:") || starts("//export") || starts("// +build") || starts("//@") {
            return false;
        }
        let whole_block = block.is_some_and(|(open, close)| {
            starts(open)
                && memchr::memmem::find(trimmed, close.as_bytes())
                    .is_some_and(|at| at + close.len() == trimmed.len())
        });
        whole_block || line_comments.iter().any(|mark| starts(mark))
    }

    fn end_hunk(&mut self) {
        if self.removed != self.added {
            self.indentation = false;
        }
        self.removed.clear();
        self.added.clear();
    }

    /// All lines were seen.
    pub fn finish(&mut self) {
        self.end_hunk();
    }

    /// More such lines were added than taken out.
    pub fn gained(&self, signal: Signal) -> bool {
        self.counts.get(signal as usize).is_some_and(|count| *count > 0)
    }

    /// More such lines were taken out than added.
    pub fn lost(&self, signal: Signal) -> bool {
        self.counts.get(signal as usize).is_some_and(|count| *count < 0)
    }

    /// Only comments changed.
    pub fn only_comments(&self) -> bool {
        self.any && self.comments && !self.gained(Signal::CheckOff)
    }

    /// Only indentation and empty lines changed, and neither means anything.
    pub fn only_indentation(&self) -> bool {
        self.any && self.indentation && !self.language.indentation_means
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(name: &str, hunks: &[&str]) -> Facts {
        let patterns = Patterns::default();
        let role = super::super::paths::classify(name.as_bytes()).role;
        let mut facts = Facts::new(name.as_bytes(), role);
        for hunk in hunks {
            facts.hunk();
            for line in hunk.lines() {
                facts.line(&patterns, line.starts_with('+'), line.get(1..).unwrap_or_default().as_bytes());
            }
        }
        facts.finish();
        facts
    }

    #[test]
    fn new_calls_are_seen_and_moved_ones_are_not() {
        let new = facts("a.rs", &["+let s = TcpStream::connect(x);\n+Command::new(\"sh\")"]);
        assert!(new.gained(Signal::Network) && new.gained(Signal::Programs));
        let moved = facts("a.rs", &["-Command::new(a);", "+    Command::new(a);"]);
        assert!(!moved.gained(Signal::Programs));
        assert!(!facts("a.md", &["+run curl x | sh"]).gained(Signal::Network));
        assert!(!facts("a.rs", &["+prefetch(x)"]).gained(Signal::Network));
        assert!(!facts("a.js", &["+/a/.exec(x)"]).gained(Signal::Programs));
        assert!(facts("a.py", &["+exec(x)"]).gained(Signal::Programs));
    }

    #[test]
    fn weaker_tests_are_seen() {
        let weaker = facts("tests/a.rs", &["-assert_eq!(a, b);\n+let _ = a;", "+#[ignore]"]);
        assert!(weaker.lost(Signal::Assertion) && weaker.gained(Signal::DisabledTest));
        let other = facts("tests/a.rs", &["-assert_eq!(a, b);\n+assert_eq!(a, c);"]);
        assert!(!other.lost(Signal::Assertion));
        assert!(facts("a.py", &["+x = 1  # type: ignore"]).gained(Signal::CheckOff));
        assert!(facts("a.py", &["+get(u, verify=False)"]).gained(Signal::VerificationOff));
    }

    #[test]
    fn comments_and_indentation_are_told_from_code() {
        assert!(facts("a.rs", &["-// old\n+// new\n+\n+/* one line */"]).only_comments());
        assert!(!facts("a.rs", &["+/* */ evil();"]).only_comments());
        assert!(!facts("a.rs", &["+*p = 0;"]).only_comments());
        assert!(!facts("a.ts", &["+// eslint-disable-next-line"]).only_comments());
        assert!(!facts("a.sh", &["+#!/bin/evil"]).only_comments());
        assert!(!facts("a.unknown", &["+# who knows"]).only_comments());
        assert!(facts("a.rs", &["-  a();\n-b();\n+    a();\n+\n+  b();"]).only_indentation());
        assert!(!facts("a.rs", &["-a();", "+a();"]).only_indentation(), "moved to another place");
        assert!(!facts("a.py", &["-  a()\n+    a()"]).only_indentation());
        assert!(!facts("a.rs", &["-// a\n-b();\n+// a b();"]).only_indentation());
        assert!(!facts("a.rs", &[]).only_indentation());
    }

    #[test]
    fn a_secret_is_told_in_every_role_and_only_where_it_is_new() {
        let key = "password = 'hunter2hunter2'";
        assert!(facts("README.md", &[&format!("+{key}")]).secret);
        assert!(!facts("a.rs", &[&format!("-{key}")]).secret);
    }
}
