//! `/proc/interrupts` and `/proc/softirqs`: rows and sums agree.
#![no_main]

use std::collections::BTreeMap;

use clearstream_host::parse::table;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = table::softirq(text, "NET_RX");
    let (rows, sums) = (table::interrupts(text), table::interrupt_sums(text));
    assert_eq!(rows.is_ok(), sums.is_ok());
    let (Ok(rows), Ok(sums)) = (rows, sums) else { return };
    let total = |counts: &mut dyn Iterator<Item = u64>| counts.fold(0, u64::wrapping_add);
    let by_row = total(&mut rows.iter().flat_map(|row| row.counts.iter().map(|(_, count)| *count)));
    assert_eq!(by_row, total(&mut sums.iter().map(|(_, sum)| *sum)));
    let cores: BTreeMap<u32, u64> = sums.into_iter().collect();
    assert!(rows.iter().flat_map(|row| &row.counts).all(|(core, _)| cores.contains_key(core)));
});
