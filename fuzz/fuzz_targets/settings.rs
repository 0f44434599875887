//! Settings files in every format, and the linter's results for them.
#![no_main]

use clearstream_lint::{MuteList, sarif};
use clearstream_tune::{Assumed, HostState, lint, syntax};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &str| {
    let line_count = u32::try_from(input.lines().count()).unwrap_or(u32::MAX);
    let parsed = syntax::parse(input);
    assert!(parsed.statements.iter().all(|made| made.line >= 1 && made.line <= line_count));
    assert!(parsed.slips.iter().all(|slip| slip.line >= 1 && slip.line <= line_count));
    let assumed = Assumed { release: Some("6.12".to_owned()), ..Assumed::default() };
    let state = HostState::of_file("fuzz", input, assumed);
    let report = lint(&state, None, &MuteList::default());
    let log = sarif(&report, "clearstream tune lint");
    assert_eq!(log["runs"][0]["results"].as_array().map(Vec::len), Some(report.findings.len()));
});
