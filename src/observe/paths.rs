//! What a path alone says of a file: what it is for, and how much a change of it deserves a look.

use super::names;
use super::record::Risk;

/// What a path says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathClass {
    /// What it is for.
    pub role: Role,
    /// Set if the path alone makes a change of it risky.
    pub weighty: Option<&'static str>,
}

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Whatever is none of the others.
    Source,
    /// Code that tests.
    Test,
    /// Text for people.
    Document,
    /// Made by a program, by its name.
    Generated,
}

/// Files and folders that later agents take orders from.
const STEERING_NAMES: &[&str] = &[
    "agents.md",
    "agents.override.md",
    "claude.md",
    "claude.local.md",
    "gemini.md",
    "qwen.md",
    "copilot-instructions.md",
    ".cursorrules",
    ".windsurfrules",
    ".clinerules",
    ".aider.conf.yml",
    ".mcp.json",
    "skill.md",
];
const STEERING_FOLDERS: &[&str] =
    &[".agents", ".claude", ".codex", ".gemini", ".cursor", ".windsurf", ".antigravity", ".qwen", ".aider"];

/// Manifests and lockfiles of package managers, and what runs while they install.
const DEPENDENCIES: &[&str] = &[
    "package.json",
    "cargo.toml",
    "go.mod",
    "pyproject.toml",
    "setup.py",
    "setup.cfg",
    "pipfile",
    "gemfile",
    "composer.json",
    "pom.xml",
    "build.gradle",
    "build.gradle.kts",
    "settings.gradle",
    "settings.gradle.kts",
    "package.swift",
    "podfile",
    "pubspec.yaml",
    "mix.exs",
    "deno.json",
    "deno.jsonc",
    "vcpkg.json",
    "conanfile.txt",
    "conanfile.py",
    "environment.yml",
    "flake.nix",
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    "pip.conf",
];
const LOCKFILES: &[&str] = &[
    "cargo.lock",
    "package-lock.json",
    "npm-shrinkwrap.json",
    "yarn.lock",
    "pnpm-lock.yaml",
    "bun.lock",
    "bun.lockb",
    "poetry.lock",
    "uv.lock",
    "pdm.lock",
    "pipfile.lock",
    "gemfile.lock",
    "composer.lock",
    "go.sum",
    "flake.lock",
    "podfile.lock",
    "package.resolved",
    "pubspec.lock",
    "mix.lock",
    "deno.lock",
];
const BUILD: &[&str] = &[
    "makefile",
    "gnumakefile",
    "justfile",
    "cmakelists.txt",
    "build.rs",
    "build.xml",
    "build.sbt",
    "build",
    "build.bazel",
    "workspace",
    "module.bazel",
    "meson.build",
    "sconstruct",
    "rakefile",
    "gruntfile.js",
    "gulpfile.js",
    "configure.ac",
    "tox.ini",
    "noxfile.py",
    "rust-toolchain",
    "rust-toolchain.toml",
    "taskfile.yml",
    "binding.gyp",
];
const CI_NAMES: &[&str] = &[
    ".gitlab-ci.yml",
    ".travis.yml",
    "azure-pipelines.yml",
    "bitbucket-pipelines.yml",
    "jenkinsfile",
    "appveyor.yml",
    ".appveyor.yml",
    ".drone.yml",
    "cloudbuild.yaml",
    "codecov.yml",
];
const CI_FOLDERS: &[&str] = &[".ci", ".circleci", ".buildkite", ".gitlab", ".teamcity", ".woodpecker"];
/// What runs by itself: on a commit, on opening a folder, at install.
const RUNS_BY_ITSELF: &[&str] = &[
    ".envrc",
    ".gitattributes",
    ".gitmodules",
    ".pre-commit-config.yaml",
    "lefthook.yml",
    ".lintstagedrc",
    "conftest.py",
    "sitecustomize.py",
    "postinstall.js",
    "postinstall.sh",
    "preinstall.js",
    "install.sh",
    "setup.sh",
    ".bashrc",
    ".profile",
    ".zshrc",
];
const RUNS_BY_ITSELF_FOLDERS: &[&str] =
    &[".husky", ".githooks", ".git-hooks", "hooks", ".devcontainer", ".vscode", ".idea"];

/// Words in a path, and what they say.
const WORDS: &[(&str, &[&str])] = &[
    (
        "authentication or permissions",
        &[
            "auth",
            "authn",
            "authz",
            "oauth",
            "oauth2",
            "oidc",
            "saml",
            "sso",
            "jwt",
            "login",
            "logout",
            "signin",
            "session",
            "sessions",
            "password",
            "passwords",
            "passwd",
            "credential",
            "credentials",
            "authentication",
            "authorization",
            "authenticate",
            "authorize",
            "permission",
            "permissions",
            "acl",
            "rbac",
            "sudo",
            "sudoers",
            "privilege",
            "privileges",
            "sandbox",
            "policy",
            "policies",
        ],
    ),
    (
        "cryptography or secrets",
        &[
            "crypto",
            "cryptography",
            "cipher",
            "encrypt",
            "encryption",
            "decrypt",
            "decryption",
            "hmac",
            "tls",
            "ssl",
            "x509",
            "certificate",
            "certificates",
            "keystore",
            "keyring",
            "secret",
            "secrets",
            "token",
            "tokens",
            "vault",
            "signature",
            "signatures",
            "signing",
        ],
    ),
    (
        "payments",
        &[
            "payment", "payments", "billing", "invoice", "invoices", "checkout", "payout", "payouts",
            "refund", "refunds", "stripe", "paypal", "wallet",
        ],
    ),
    ("database schema or migration", &["migration", "migrations", "migrate", "schema", "schemas"]),
];

/// Endings of files that a program can be written in. In a folder of documents these are code all the same.
const CODE: &[&str] = &[
    "rs", "c", "h", "cc", "cpp", "cxx", "hpp", "hh", "m", "mm", "go", "py", "pyi", "rb", "js", "mjs", "cjs",
    "jsx", "ts", "mts", "cts", "tsx", "java", "kt", "kts", "scala", "swift", "cs", "fs", "vb", "php", "pl",
    "pm", "lua", "r", "jl", "ex", "exs", "erl", "hs", "ml", "clj", "dart", "zig", "nim", "v", "sol", "sh",
    "bash", "zsh", "fish", "ps1", "bat", "cmd", "sql", "vue", "svelte", "html", "gradle", "groovy", "tf",
    "nix", "cmake", "mk", "proto", "wat", "asm", "s",
];

/// What the name of a file says. Case makes no difference.
pub fn classify(name: &[u8]) -> PathClass {
    let text = String::from_utf8_lossy(name);
    let lower = text.to_lowercase();
    let parts: Vec<&str> = lower.split('/').collect();
    let (file, folders) = parts.split_last().map_or(("", &[][..]), |(file, folders)| (*file, folders));
    let extension = file.rsplit_once('.').map_or("", |(_, extension)| extension);
    let below = |known: &[&str]| folders.iter().any(|folder| known.contains(folder));
    let is_code = CODE.contains(&extension);

    let weighty = weighty(&text, &lower, file, folders, extension, is_code);
    let role = if is_generated(file, extension, folders) {
        Role::Generated
    } else if is_test(names::file_name(name), file, folders) {
        Role::Test
    } else if !is_code
        && (matches!(extension, "md" | "mdx" | "rst" | "adoc" | "txt" | "org" | "tex")
            || below(&["docs", "doc"])
            || ["license", "licence", "readme", "changelog", "authors", "notice", "contributing", "copying"]
                .iter()
                .any(|known| file == *known || file.starts_with(&format!("{known}."))))
    {
        Role::Document
    } else {
        Role::Source
    };
    PathClass { role, weighty }
}

fn weighty(
    text: &str,
    lower: &str,
    file: &str,
    folders: &[&str],
    extension: &str,
    is_code: bool,
) -> Option<&'static str> {
    let below = |known: &[&str]| folders.iter().any(|folder| known.contains(folder));
    let is_mcp = file.contains("mcp") && extension == "json";
    if STEERING_NAMES.contains(&file) || below(STEERING_FOLDERS) || is_mcp {
        return Some("steers later agents");
    }
    if LOCKFILES.contains(&file) {
        return Some("lockfile");
    }
    if DEPENDENCIES.contains(&file)
        || (file.starts_with("requirements") && matches!(extension, "txt" | "in"))
        || matches!(extension, "csproj" | "fsproj" | "vbproj" | "gemspec" | "podspec" | "cabal" | "rockspec")
    {
        return Some("dependency manifest");
    }
    let github = lower.starts_with(".github/") || lower.contains("/.github/");
    if CI_NAMES.contains(&file)
        || below(CI_FOLDERS)
        || (github && (below(&["workflows", "actions"]) || file == "dependabot.yml" || file == "codeowners"))
    {
        return Some("continuous integration");
    }
    if file.starts_with("dockerfile")
        || extension == "dockerfile"
        || file.starts_with("containerfile")
        || file == ".dockerignore"
        || (file.contains("compose") && matches!(extension, "yml" | "yaml"))
    {
        return Some("container image");
    }
    if RUNS_BY_ITSELF.contains(&file) || below(RUNS_BY_ITSELF_FOLDERS) {
        return Some("runs by itself");
    }
    if BUILD.contains(&file) || matches!(extension, "mk" | "cmake" | "gyp" | "gypi" | "bzl" | "gradle") {
        return Some("build");
    }
    if extension == "sql" {
        return Some("database schema or migration");
    }
    if matches!(extension, "pem" | "key" | "p12" | "pfx" | "jks" | "keystore" | "crt" | "gpg" | "asc")
        || file == ".env"
        || file.starts_with(".env.")
    {
        return Some("cryptography or secrets");
    }
    // Words of text for people say nothing of what it does.
    if !is_code && matches!(extension, "md" | "mdx" | "rst" | "adoc" | "txt" | "org" | "tex") {
        return None;
    }
    let words = words(text);
    WORDS.iter().find(|(_, known)| words.iter().any(|word| known.contains(&&**word))).map(|(says, _)| *says)
}

fn is_generated(file: &str, extension: &str, folders: &[&str]) -> bool {
    let ends = [
        ".min.js",
        ".min.css",
        ".pb.go",
        ".pb.h",
        ".pb.cc",
        "_pb2.py",
        "_pb2_grpc.py",
        ".g.dart",
        ".freezed.dart",
        ".designer.cs",
        ".g.cs",
        ".snap",
        ".js.map",
        ".css.map",
    ];
    ends.iter().any(|end| file.ends_with(end))
        || file.contains(".generated.")
        || file.contains(".gen.")
        || extension == "map"
        || folders
            .iter()
            .any(|folder| matches!(*folder, "dist" | "generated" | "__snapshots__" | "__generated__"))
}

/// `exact` is the file's name as it is written: `LatestTest.java` is a test, `latest.java` is none.
fn is_test(exact: &[u8], file: &str, folders: &[&str]) -> bool {
    let in_folder = folders.iter().any(|folder| {
        matches!(*folder, "test" | "tests" | "__tests__" | "spec" | "specs" | "testdata" | "e2e")
    });
    let stem = file.split('.').next().unwrap_or_default();
    let exact = String::from_utf8_lossy(exact);
    let exact_stem = exact.split('.').next().unwrap_or_default();
    in_folder
        || file.contains(".test.")
        || file.contains(".spec.")
        || stem.starts_with("test_")
        || stem.ends_with("_test")
        || stem.ends_with("_tests")
        || stem.ends_with("_spec")
        || stem == "tests"
        || ["Test", "Tests", "Spec", "IT"].iter().any(|end| {
            exact_stem
                .strip_suffix(end)
                .is_some_and(|rest| rest.ends_with(|c: char| c.is_lowercase() || c.is_numeric()))
        })
}

/// The words of a path in lower case: parts between signs, and those that a capital begins.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut previous = ' ';
    for character in text.chars() {
        if !character.is_alphanumeric() {
            previous = ' ';
            continue;
        }
        if !previous.is_alphanumeric() || (previous.is_lowercase() && character.is_uppercase()) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.extend(character.to_lowercase());
        }
        previous = character;
    }
    words
}

impl Role {
    /// What a change is worth by its role alone, and the word for it.
    pub fn worth(self) -> (Risk, &'static str) {
        match self {
            Self::Source => (Risk::Medium, "implementation change"),
            Self::Test => (Risk::Low, "test"),
            Self::Document => (Risk::Low, "documentation"),
            Self::Generated => (Risk::Low, "generated"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_decide_are_weighty() {
        for (path, says) in [
            ("AGENTS.md", "steers later agents"),
            ("sub/CLAUDE.md", "steers later agents"),
            (".claude/settings.json", "steers later agents"),
            (".codex/config.toml", "steers later agents"),
            (".agents/x", "steers later agents"),
            ("mcp.json", "steers later agents"),
            ("mcp_config.json", "steers later agents"),
            ("Cargo.lock", "lockfile"),
            ("web/package.json", "dependency manifest"),
            ("requirements-dev.txt", "dependency manifest"),
            (".github/workflows/ci.yml", "continuous integration"),
            ("Dockerfile.prod", "container image"),
            ("docker-compose.yaml", "container image"),
            (".husky/pre-commit", "runs by itself"),
            ("Makefile", "build"),
            ("build.rs", "build"),
            ("db/001.sql", "database schema or migration"),
            ("app/migrations/0001_initial.py", "database schema or migration"),
            ("src/auth/mod.rs", "authentication or permissions"),
            ("src/UserPermissions.java", "authentication or permissions"),
            ("lib/tokenStore.ts", "cryptography or secrets"),
            (".env.production", "cryptography or secrets"),
            ("billing/invoice.go", "payments"),
        ] {
            assert_eq!(classify(path.as_bytes()).weighty, Some(says), "{path}");
        }
    }

    #[test]
    fn ordinary_paths_are_not() {
        for path in [
            "src/main.rs",
            "src/author.rs",
            "src/tokenizer.rs",
            "docs/authentication.md",
            "README.md",
            "a/b/c",
            "src/blessing.py",
            "",
            "Ünï/日本.txt",
        ] {
            assert_eq!(classify(path.as_bytes()).weighty, None, "{path}");
        }
    }

    #[test]
    fn roles_are_known_by_name() {
        for (path, role) in [
            ("tests/a.rs", Role::Test),
            ("src/a_test.go", Role::Test),
            ("src/a.spec.ts", Role::Test),
            ("src/UserTest.java", Role::Test),
            ("src/Latest.java", Role::Source),
            ("src/contest.py", Role::Source),
            ("test_a.py", Role::Test),
            ("README", Role::Document),
            ("docs/a.png", Role::Document),
            ("docs/conf.py", Role::Source),
            ("a.txt", Role::Document),
            ("api/x.pb.go", Role::Generated),
            ("dist/app.js", Role::Generated),
            ("src/main.rs", Role::Source),
            ("Vagrantfile", Role::Source),
        ] {
            assert_eq!(classify(path.as_bytes()).role, role, "{path}");
        }
    }
}
