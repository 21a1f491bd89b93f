//! The mock model.
mod support;
use support::mock_model::*;
#[test]
fn x() {
    let _ = MockModel::start(Script::new());
}
