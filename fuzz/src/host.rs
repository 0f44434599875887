//! Files of `/proc` and `/sys`, which a capture from elsewhere has as well.

use std::collections::BTreeMap;

use clearstream_host::parse::{cpuset, pci, stat, table, text};

use crate::text_of;

/// Core lists: the result is ascending, bounded, and round-trips.
pub(crate) fn cpulist(bytes: &[u8]) {
    let text = &*text_of(bytes);
    if let Ok(cores) = cpuset::list(text) {
        assert!(cores.is_sorted_by(|a, b| a < b));
        assert!(cores.last().is_none_or(|&core| core <= cpuset::LARGEST_CORE));
        let formatted: Vec<String> = cores.iter().map(u32::to_string).collect();
        assert_eq!(cpuset::list(&formatted.join(",")), Ok(cores));
    }
}

/// Core masks: the same.
pub(crate) fn cpumask(bytes: &[u8]) {
    let text = &*text_of(bytes);
    if let Ok(cores) = cpuset::mask(text) {
        assert!(cores.is_sorted_by(|a, b| a < b));
        let mut groups = vec![0u32; cores.last().map_or(1, |&core| core as usize / 32 + 1)];
        for &core in &cores {
            groups[core as usize / 32] |= 1 << (core % 32);
        }
        let formatted: Vec<String> = groups.iter().rev().map(|group| format!("{group:08x}")).collect();
        assert_eq!(cpuset::mask(&formatted.join(",")), Ok(cores));
    }
}

/// Small text files: memory, caches, distances, processor, limits, cgroups.
pub(crate) fn host_text(bytes: &[u8]) {
    let input = &*text_of(bytes);
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
}

/// `/proc/interrupts` and `/proc/softirqs`: rows and sums agree.
pub(crate) fn interrupts(bytes: &[u8]) {
    let text = &*text_of(bytes);
    let _ = table::softirq(text, "NET_RX");
    let (rows, sums) = (table::interrupts(text), table::interrupt_sums(text));
    assert_eq!(rows.is_ok(), sums.is_ok());
    let (Ok(rows), Ok(sums)) = (rows, sums) else { return };
    let total = |counts: &mut dyn Iterator<Item = u64>| counts.fold(0, u64::wrapping_add);
    let by_row = total(&mut rows.iter().flat_map(|row| row.counts.iter().map(|(_, count)| *count)));
    assert_eq!(by_row, total(&mut sums.iter().map(|(_, sum)| *sum)));
    let cores: BTreeMap<u32, u64> = sums.into_iter().collect();
    assert!(rows.iter().flat_map(|row| &row.counts).all(|(core, _)| cores.contains_key(core)));
}

/// `/proc/net/softnet_stat`, `/proc/stat` and `/proc/net/dev`.
pub(crate) fn softnet(bytes: &[u8]) {
    let text = &*text_of(bytes);
    if let Ok(rows) = table::softnet(text) {
        assert_eq!(rows.len(), text.lines().count());
    }
    let _ = stat::core_times(text);
    let _ = stat::interfaces(text);
}

/// PCI configuration space: the capability walk terminates, and the part kept for a capture decodes like the whole.
pub(crate) fn pci_config(config: &[u8]) {
    let kept = pci::without_serials(config);
    assert!(kept.len() <= config.len());
    let found = pci::device_control(config);
    if let Ok(found) = found
        && config.len() <= 256
    {
        assert_eq!(pci::device_control(&kept), Ok(found));
    }
    if let Ok(text) = std::str::from_utf8(config) {
        let _ = pci::link_speed(text);
        let _ = pci::link_width(text);
        let _ = pci::is_address(text);
    }
}
