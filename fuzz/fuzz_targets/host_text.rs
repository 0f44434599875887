//! Small text files: memory, caches, distances, processor, limits, cgroups.
#![no_main]

use clearstream_host::parse::text;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &str| {
    let _ = text::memory_bytes(input, "MemTotal");
    let _ = text::cache_bytes(input);
    let _ = text::distances(input);
    let _ = text::cpu_info(input);
    let _ = text::status_field(input, "Cpus_allowed_list");
    let _ = text::soft_limit(input, "Max locked memory");
    let _ = text::cpu_max_millicores(input);
    let _ = text::memory_limit(input);
    if let Ok(groups) = text::cgroups(input) {
        assert!(groups.iter().all(|group| group.path.starts_with('/')));
    }
});
