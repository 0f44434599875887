//! Core lists: the result is ascending, bounded, and round-trips.
#![no_main]

use clearstream_host::parse::cpuset;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(cores) = cpuset::list(text) {
        assert!(cores.is_sorted_by(|a, b| a < b));
        assert!(cores.last().is_none_or(|&core| core <= cpuset::LARGEST_CORE));
        let formatted: Vec<String> = cores.iter().map(u32::to_string).collect();
        assert_eq!(cpuset::list(&formatted.join(",")), Ok(cores));
    }
});
