//! A Gemini CLI run may print anything.
#![no_main]

use agent_bridge::policy::AgentId;

libfuzzer_sys::fuzz_target!(|data: &[u8]| agent_bridge_fuzz::judge(AgentId::Gemini, data));
