//! Core masks: the result is ascending, bounded, and round-trips.
#![no_main]

use clearstream_host::parse::cpuset;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(cores) = cpuset::mask(text) {
        assert!(cores.is_sorted_by(|a, b| a < b));
        let mut groups = vec![0u32; cores.last().map_or(1, |&core| core as usize / 32 + 1)];
        for &core in &cores {
            groups[core as usize / 32] |= 1 << (core % 32);
        }
        let formatted: Vec<String> = groups.iter().rev().map(|group| format!("{group:08x}")).collect();
        assert_eq!(cpuset::mask(&formatted.join(",")), Ok(cores));
    }
});
