//! Sets of processing units as the kernel prints them
//! (Documentation/admin-guide/cputopology.rst): lists `0-3,8` and masks of
//! hexadecimal groups of 32 bits, `ff,ffffffff`, most significant first.

use super::ParseError;

/// Above any kernel's NR_CPUS (8192); bounds the allocation for corrupt files.
pub const LARGEST_CORE: u32 = 65_535;

/// Parses `0-3,8`. Empty text is the empty set. Ascending, without duplicates.
pub fn list(text: &str) -> Result<Vec<u32>, ParseError> {
    let text = text.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\0');
    let mut cores = Vec::new();
    if text.is_empty() {
        return Ok(cores);
    }
    let fail = || ParseError::new("a list of cores such as 0-3,8", text);
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first = core(first).ok_or_else(fail)?;
        let last = core(last).ok_or_else(fail)?;
        if last < first {
            return Err(fail());
        }
        // Overlapping ranges in a corrupt file must not add up.
        if cores.len() > LARGEST_CORE as usize {
            return Err(fail());
        }
        cores.extend(first..=last);
    }
    if !cores.is_sorted_by(|a, b| a < b) {
        cores.sort_unstable();
        cores.dedup();
    }
    Ok(cores)
}

fn core(text: &str) -> Option<u32> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|&core| core <= LARGEST_CORE)
}

/// Parses `ff,ffffffff`: the last group of 32 bits holds cores 0 to 31. A mask without commas may have any
/// number of digits (`/proc/irq/default_smp_affinity` of small hosts). Ascending.
pub fn mask(text: &str) -> Result<Vec<u32>, ParseError> {
    let text = text.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\0');
    let fail = || ParseError::new("a mask of cores such as ff,ffffffff", text);
    let mut cores = Vec::new();
    let mut base: u32 = 0;
    for (index, group) in text.rsplit(',').enumerate() {
        // All groups except the first (the last in this order) have 8 digits.
        let comma_follows = text.contains(',') && index > 0;
        if group.is_empty() || (text.contains(',') && group.len() > 8) {
            return Err(fail());
        }
        if comma_follows {
            base = base.next_multiple_of(32);
        }
        for digit in group.chars().rev() {
            let digit = digit.to_digit(16).ok_or_else(fail)?;
            cores.extend((0..4).filter(|bit| digit >> bit & 1 == 1).map(|bit| base + bit));
            base += 4;
            if base > LARGEST_CORE {
                return Err(fail());
            }
        }
    }
    Ok(cores)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_lists() {
        assert_eq!(list("0-3,8\n").unwrap(), [0, 1, 2, 3, 8]);
        assert_eq!(list("\n").unwrap(), [] as [u32; 0]);
        assert_eq!(list("5").unwrap(), [5]);
        assert_eq!(list("1022-1025").unwrap(), [1022, 1023, 1024, 1025]);
        assert_eq!(list("4,2-3,3").unwrap(), [2, 3, 4]);
        for text in ["3-1", "a", "0-", "-1", "0,,1", "0-4294967295", "99999", "+1", "0 1"] {
            assert!(list(text).is_err(), "{text}");
        }
    }

    /// Formats from Documentation/core-api/irq/irq-affinity.rst and from hosts of 48, 80 and more than 1024
    /// cores.
    #[test]
    fn reads_masks() {
        assert_eq!(mask("f0\n").unwrap(), [4, 5, 6, 7]);
        assert_eq!(mask("0").unwrap(), [] as [u32; 0]);
        assert_eq!(mask("ffff,ffffffff").unwrap(), (0..48).collect::<Vec<_>>());
        assert_eq!(mask("00010000,00000000,00000001").unwrap(), [0, 80]);
        let mut groups = vec!["00000000"; 40];
        groups[0] = "00000001";
        groups[39] = "80000000";
        assert_eq!(mask(&groups.join(",")).unwrap(), [31, 39 * 32]);
        assert_eq!(mask("f0000000000000000").unwrap(), [64, 65, 66, 67]);
        for text in ["", ",", "f,", "xyz", "0x3", "fffffffff,0", "f f"] {
            assert!(mask(text).is_err(), "{text}");
        }
    }

    fn list_text(cores: &[u32]) -> String {
        cores.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
    }

    fn mask_text(cores: &[u32]) -> String {
        let mut groups = vec![0u32; cores.last().map_or(1, |&core| core as usize / 32 + 1)];
        for &core in cores {
            groups[core as usize / 32] |= 1 << (core % 32);
        }
        groups.iter().rev().map(|group| format!("{group:08x}")).collect::<Vec<_>>().join(",")
    }

    proptest! {
        #[test]
        fn both_formats_describe_the_same_set(set in proptest::collection::btree_set(0u32..4096, 0..64)) {
            let cores: Vec<u32> = set.into_iter().collect();
            prop_assert_eq!(list(&list_text(&cores)).unwrap(), cores.clone());
            prop_assert_eq!(mask(&mask_text(&cores)).unwrap(), cores);
        }

        #[test]
        fn never_panics(text in "[-0-9a-f,x \\n]{0,60}|\\PC{0,40}") {
            let _ = list(&text);
            let _ = mask(&text);
        }
    }
}
