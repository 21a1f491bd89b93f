//! The clients that can be configured: where each one's file is, how it is written, what goes into it. Facts of
//! the clients stand here and nowhere else.

/// The name under which clients know the server.
pub const NAME: &str = "agent-bridge";

/// How a client's file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// TOML.
    Toml,
    /// JSON as its standard has it.
    Json,
    /// JSON with comments, without commas after the last member.
    JsonWithComments,
}

/// What a place in a path stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The folder that a variable names; the place is left out if it is not set.
    Variable(&'static str),
    /// The user's home folder.
    Home,
    /// `%APPDATA%` (Windows).
    RoamingData,
    /// Each folder of `%LOCALAPPDATA%\Packages` whose name begins so (Windows).
    Package(&'static str),
}

/// One place where a client may have its file.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The systems (as `std::env::consts::OS` names them); all if empty.
    pub systems: &'static [&'static str],
    /// Below what.
    pub base: Base,
    /// The folders and the file.
    pub path: &'static [&'static str],
    /// Only if a file is there.
    pub only_if_present: bool,
}

/// What is put into a file.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// A server under this key.
    Server {
        /// `mcp_servers`, `mcpServers`.
        section: &'static str,
        /// Keys with numbers, set where they are missing.
        numbers: &'static [(&'static str, u64)],
        /// Keys with texts, set where they are missing.
        texts: &'static [(&'static str, &'static str)],
        /// What lets headless runs call tools without a question.
        headless: Headless,
    },
    /// `mcp__NAME` in the list at this path, so that headless runs may call the tools.
    Rule {
        /// Where the list is.
        path: &'static [&'static str],
    },
}

/// What lets headless runs call tools without a question.
#[derive(Clone, Copy, Debug)]
pub enum Headless {
    /// A key with a text beside the command.
    Text(&'static str, &'static str),
    /// A key that is true.
    Yes(&'static str),
    /// Another file, or nothing.
    Elsewhere,
}

/// One file of one client.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// Stable id.
    pub id: &'static str,
    /// Selected together with this client.
    pub belongs_to: &'static str,
    /// For people, and in the list of running hosts.
    pub name: &'static str,
    /// Where the file is: the first place that applies.
    pub places: &'static [Place],
    /// How it is written.
    pub format: Format,
    /// Whether the client reads a file that begins with a byte order mark.
    pub reads_byte_order_mark: bool,
    /// What goes into it.
    pub shape: Shape,
    /// The version that all this was last checked against.
    pub checked: &'static str,
}

const fn below(base: Base, path: &'static [&'static str]) -> Place {
    Place { systems: &[], base, path, only_if_present: false }
}

const fn on(systems: &'static [&'static str], base: Base, path: &'static [&'static str]) -> Place {
    Place { systems, base, path, only_if_present: false }
}

const fn if_present(base: Base, path: &'static [&'static str]) -> Place {
    Place { systems: &[], base, path, only_if_present: true }
}

const DESKTOP: Client = Client {
    id: "claude-desktop",
    belongs_to: "claude-desktop",
    name: "Claude Desktop",
    places: &[
        on(&["windows"], Base::RoamingData, &["Claude", "claude_desktop_config.json"]),
        on(
            &["macos"],
            Base::Home,
            &["Library", "Application Support", "Claude", "claude_desktop_config.json"],
        ),
        on(&["linux"], Base::Variable("XDG_CONFIG_HOME"), &["Claude", "claude_desktop_config.json"]),
        on(&["linux"], Base::Home, &[".config", "Claude", "claude_desktop_config.json"]),
    ],
    format: Format::Json,
    // It drops every server then.
    reads_byte_order_mark: false,
    shape: Shape::Server { section: "mcpServers", numbers: &[], texts: &[], headless: Headless::Elsewhere },
    checked: "not run here; from its documentation",
};

/// Every file of every client.
pub const CLIENTS: &[Client] = &[
    Client {
        id: "codex",
        belongs_to: "codex",
        name: "Codex",
        places: &[
            below(Base::Variable("CODEX_HOME"), &["config.toml"]),
            below(Base::Home, &[".codex", "config.toml"]),
        ],
        format: Format::Toml,
        reads_byte_order_mark: true,
        shape: Shape::Server {
            section: "mcp_servers",
            // Progress does not extend the limit of a call, so it has to be longer than the longest one.
            numbers: &[("startup_timeout_sec", 30), ("tool_timeout_sec", 300)],
            texts: &[],
            headless: Headless::Text("default_tools_approval_mode", "approve"),
        },
        checked: "0.171.0",
    },
    Client {
        id: "claude-code",
        belongs_to: "claude-code",
        name: "Claude Code",
        // An older name of the file goes first where there is one.
        places: &[
            if_present(Base::Variable("CLAUDE_CONFIG_DIR"), &[".config.json"]),
            below(Base::Variable("CLAUDE_CONFIG_DIR"), &[".claude.json"]),
            if_present(Base::Home, &[".claude", ".config.json"]),
            below(Base::Home, &[".claude.json"]),
        ],
        format: Format::Json,
        reads_byte_order_mark: true,
        shape: Shape::Server {
            section: "mcpServers",
            numbers: &[],
            texts: &[("type", "stdio")],
            headless: Headless::Elsewhere,
        },
        checked: "2.1.332",
    },
    Client {
        id: "claude-code-permission",
        belongs_to: "claude-code",
        name: "Claude Code (permission)",
        places: &[
            below(Base::Variable("CLAUDE_CONFIG_DIR"), &["settings.json"]),
            below(Base::Home, &[".claude", "settings.json"]),
        ],
        format: Format::Json,
        reads_byte_order_mark: true,
        shape: Shape::Rule { path: &["permissions", "allow"] },
        checked: "2.1.332",
    },
    DESKTOP,
    Client {
        id: "claude-desktop-packaged",
        belongs_to: "claude-desktop",
        name: "Claude Desktop (from the Store)",
        places: &[on(
            &["windows"],
            Base::Package("Claude_"),
            &["LocalCache", "Roaming", "Claude", "claude_desktop_config.json"],
        )],
        ..DESKTOP
    },
    Client {
        id: "gemini",
        belongs_to: "gemini",
        name: "Gemini CLI",
        places: &[
            below(Base::Variable("GEMINI_CLI_HOME"), &[".gemini", "settings.json"]),
            below(Base::Home, &[".gemini", "settings.json"]),
        ],
        format: Format::JsonWithComments,
        // It refuses to start then.
        reads_byte_order_mark: false,
        shape: Shape::Server {
            section: "mcpServers",
            numbers: &[("timeout", 300_000)],
            texts: &[],
            headless: Headless::Yes("trust"),
        },
        checked: "0.61.0",
    },
];

/// The file with this id.
pub fn find(id: &str) -> Option<&'static Client> {
    CLIENTS.iter().find(|client| client.id == id)
}

/// The ids that can be asked for.
pub fn ids() -> impl Iterator<Item = &'static str> {
    CLIENTS.iter().filter(|client| client.id == client.belongs_to).map(|client| client.id)
}
