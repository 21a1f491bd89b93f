//! agent-bridge: one controlled way for an MCP host to hand work to local coding agents.
//!
//! Arrows go downward only: front doors (`cli`, `mcp`) → use cases (`bridge`, `release`, `doctor`) → parts
//! (`agents`, `observe`, `scope`, `store`, `policy`, `config`) → ground (`process`, `platform`).

pub mod agents;
pub mod bridge;
pub mod cli;
pub mod config;
pub mod context;
pub mod digest;
pub mod doctor;
pub mod error;
pub mod mcp;
pub mod observe;
pub mod platform;
pub mod policy;
pub mod process;
pub mod relay;
pub mod release;
pub mod scope;
pub mod store;
