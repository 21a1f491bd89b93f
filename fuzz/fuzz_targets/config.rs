//! A config file may hold anything; what is accepted never widens authority.
#![no_main]

use std::path::Path;

use agent_bridge::config;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let context = agent_bridge_fuzz::world();
    // The only path that exists in every run.
    let text = String::from_utf8_lossy(data).replace("/w", &context.cwd.to_string_lossy());
    let report = config::check_bytes(context, Path::new("/config.json"), text.as_bytes());
    let Some(config) = report.config else {
        assert!(!report.problems.is_empty(), "refused without a reason");
        return;
    };
    assert!(report.problems.is_empty());
    assert!(!config.allowed_roots.is_empty());
    assert!(config.defaults.sandbox <= config.sandbox_ceiling);
    for root in &config.allowed_roots {
        assert!(root.is_absolute());
        assert!(!config.state_dir.starts_with(root), "the state folder is inside an allowed root");
    }
    if let Some(cwd) = &config.defaults.cwd {
        assert!(config.allowed_roots.iter().any(|root| cwd.starts_with(root)));
    }
    for root in &config.remote_egress.allowed_roots {
        assert!(config.allowed_roots.iter().any(|allowed| root.starts_with(allowed)));
    }
});
