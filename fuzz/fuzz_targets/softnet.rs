//! `/proc/net/softnet_stat`, `/proc/stat` and `/proc/net/dev`.
#![no_main]

use clearstream_host::parse::{stat, table};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(rows) = table::softnet(text) {
        assert_eq!(rows.len(), text.lines().count());
    }
    let _ = stat::core_times(text);
    let _ = stat::interfaces(text);
});
