//! The tool list as hosts see it, kept as a file.
//!
//! Generating a dozen schemas takes longer than starting the program, and hosts start it often. So the
//! list is generated once, by the test below, which also holds the file to the types:
//! `AGENT_BRIDGE_UPDATE_CATALOGUE=1 cargo test kept` writes it anew after a change.

use rmcp::model::Tool;

use super::tools;
use crate::config::Toolset;

/// Every tool, in the order in which it is listed.
pub static CATALOGUE: &str = include_str!("catalogue.json");

/// The tools of the groups that are switched on.
pub fn offered(groups: &[Toolset]) -> Vec<Tool> {
    let all: Vec<Tool> = serde_json::from_str(CATALOGUE).unwrap_or_default();
    let names: Vec<&str> = tools::offered(groups).map(|tool| tool.name).collect();
    all.into_iter().filter(|tool| names.contains(&tool.name.as_ref())).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn the_kept_list_is_the_one_that_the_types_give() {
        let generated: Vec<Tool> = tools::TOOLS.iter().map(tools::ToolDefinition::published).collect();
        // A line a tool: small to parse, and a change shows which tool it is in.
        let lines: Vec<String> = generated.iter().map(|tool| serde_json::to_string(tool).unwrap()).collect();
        let text = format!("[\n{}\n]\n", lines.join(",\n"));
        if std::env::var_os("AGENT_BRIDGE_UPDATE_CATALOGUE").is_some() {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/mcp/catalogue.json");
            std::fs::write(path, &text).unwrap();
            return;
        }
        assert!(
            text == CATALOGUE.replace("\r\n", "\n"),
            "src/mcp/catalogue.json is out of date: run AGENT_BRIDGE_UPDATE_CATALOGUE=1 cargo test kept"
        );
        assert_eq!(offered(&[Toolset::Diagnostics]).len(), 1);
    }
}
