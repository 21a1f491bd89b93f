//! A transcript of any texts, within any bound: no text closes the tag, and the bound holds.
#![no_main]

use agent_bridge::bridge::context_block::{PastTurn, Scope, Transcript, render_within};
use agent_bridge::policy::AgentId;

libfuzzer_sys::fuzz_target!(|input: (u16, bool, Vec<(String, String)>)| {
    let (bound, full, texts) = input;
    let turns: Vec<PastTurn> = texts
        .into_iter()
        .enumerate()
        .map(|(index, (prompt, response))| PastTurn {
            index: index as u64,
            agent: AgentId::Codex,
            prompt,
            response,
            ended_in_error: false,
        })
        .collect();
    let transcript = Transcript {
        scope: if full { Scope::Full } else { Scope::Delta },
        working_directory: "/repo",
        original_objective: turns.first().map_or("", |turn| turn.prompt.as_str()),
        turns: &turns,
        omitted: 0,
    };
    if let Some(block) = render_within(&transcript, usize::from(bound)) {
        assert!(block.len() <= usize::from(bound));
        assert_eq!(block.matches("</UNTRUSTED_BRIDGE_TRANSCRIPT>").count(), 1);
    }
});
