//! The harness of the black-box tests. A test file says `mod support;` and uses
//!
//! - [`world`]: a machine of its own for each test, the real `agent-bridge` in it, fake agents;
//! - [`agy`]: a stand-in for Antigravity's CLI, which cannot be had;
//! - [`host`]: a scripted MCP host on the standard streams of `agent-bridge serve`;
//! - [`mcp_http`]: a scripted MCP server over HTTP, as the endpoint of a run is one;
//! - [`mock_model`]: a scripted model server on loopback;
//! - [`real`]: the real CLIs, pointed at that server, as workers and as hosts;
//! - [`worker`]: a real CLI as a worker, and what each worker has to keep to;
//! - [`release`]: releases, bundles and installations;
//! - [`scope`]: endpoints of workers, and raw connections to them;
//! - [`process`]: running programs under a deadline, finding processes that should be gone.
//!
//! ```ignore
//! mod support;
//! use support::prelude::*;
//!
//! #[test]
//! fn a_task_is_delegated_to_the_real_codex() {
//!     let model = MockModel::start(Script::new().scenario("hello", [reply().text("hi")]));
//!     let world = World::new().build();
//!     let Some(codex) = real::codex(&world, &model) else { return };
//!     world.set_agent("codex", codex.agent());
//!     let mut host = world.host();
//!     host.initialize();
//!     let result = host.call("delegate_task", json!({ "agent": "codex", "prompt": "scenario:hello" })).ok();
//!     assert!(result.text.contains("hi"));
//!     host.hang_up();
//!     host.wait_exit(DEADLINE).expect_code(0);
//!     world.assert_no_process_left(DEADLINE);
//! }
//! ```
//!
//! Nothing here sleeps to wait for something: every wait is for an event or a condition, and has a deadline that
//! fails the test with the story so far.
#![allow(
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "each test file uses a part of the harness, and a harness panics where a test has to stop"
)]

pub mod agy;
pub mod bundle;
pub mod clients;
pub mod host;
pub mod mcp_http;
pub mod mock_model;
pub mod process;
pub mod real;
pub mod release;
pub mod scope;
pub mod worker;
pub mod world;

/// What nearly every test needs.
pub mod prelude {
    pub use std::time::Duration;

    pub use serde_json::{Value, json};

    pub use super::host::{Host, Pending, RpcError, ToolResult};
    pub use super::mock_model::{Api, MockModel, Script, Usage, attempts, reply, reply_with};
    pub use super::process::{self, DEADLINE, Finished, Running, Signal};
    pub use super::real;
    pub use super::release::{Release, ReleaseWorld};
    pub use super::world::{BRIDGE, World};
}
