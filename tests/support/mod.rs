//! The harness of the black-box tests. A test file says `mod support;` and picks what it needs:
//!
//! - [`mock_model`]: a scripted model server, for real CLIs
#![allow(
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "each test file uses a part of the harness, and a harness panics where a test has to stop"
)]

pub mod mock_model;
