//! The front door for MCP hosts: one server on standard input and output.

pub mod catalogue;
mod elicitation;
mod reply;
pub mod schema;
mod server;
mod tools;
mod transport;

pub use server::{INSTRUCTIONS, Introduced, serve};
pub use tools::turns::turn_text;
pub use tools::{TOOLS, ToolDefinition, offered, outputs, relay};
