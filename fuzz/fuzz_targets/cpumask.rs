//! Core masks: what is read is ascending, bounded, and reads back the same.
#![no_main]

use clearstream_host::parse::cpuset;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(cores) = cpuset::mask(text) {
        assert!(cores.is_sorted_by(|a, b| a < b));
        let mut words = vec![0u32; cores.last().map_or(1, |&core| core as usize / 32 + 1)];
        for &core in &cores {
            words[core as usize / 32] |= 1 << (core % 32);
        }
        let again: Vec<String> = words.iter().rev().map(|word| format!("{word:08x}")).collect();
        assert_eq!(cpuset::mask(&again.join(",")), Ok(cores));
    }
});
