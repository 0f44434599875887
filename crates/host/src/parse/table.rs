//! Tables with one column per processing unit: `/proc/interrupts` and
//! `/proc/softirqs`; and `/proc/net/softnet_stat` with one row per unit.

use super::{ParseError, cpuset::LARGEST_CORE};

/// Cores named by the head line `CPU0 CPU1 ...`: the online ones in
/// `/proc/interrupts`, the possible ones in `/proc/softirqs`.
fn head_cores(line: &str) -> Result<Vec<u32>, ParseError> {
    let fail = || ParseError::new("a head line CPU0 CPU1 ...", line);
    let mut cores = Vec::new();
    for token in line.split_ascii_whitespace() {
        let core = token.strip_prefix("CPU").and_then(|number| number.parse().ok()).ok_or_else(fail)?;
        if core > LARGEST_CORE {
            return Err(fail());
        }
        cores.push(core);
    }
    if cores.is_empty() { Err(fail()) } else { Ok(cores) }
}

/// Parses the next number from the front of `rest`; `None` when the next token is not a number. Hand-written
/// because a busy host's table has millions.
fn take_count(rest: &mut &str) -> Option<u64> {
    let bytes = rest.as_bytes();
    let start = bytes.iter().position(|&byte| byte != b' ' && byte != b'\t')?;
    let mut value: u64 = 0;
    let mut at = start;
    while let Some(digit) = bytes.get(at).map(|byte| byte.wrapping_sub(b'0')).filter(|&digit| digit < 10) {
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
        at += 1;
    }
    // A token such as `8-edge` begins with digits but is not a count.
    let ends = bytes.get(at).is_none_or(|byte| byte.is_ascii_whitespace());
    if at == start || !ends {
        return None;
    }
    *rest = &rest[at..];
    Some(value)
}

/// One row of `/proc/interrupts`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterruptRow {
    /// Interrupt number.
    pub interrupt: u32,
    /// Non-zero counts per core.
    pub counts: Vec<(u32, u64)>,
    /// Chip, hardware number and trigger: `PCI-MSI 49153-edge`.
    pub chip: String,
    /// Names of the actions, separated by comma and blank.
    pub action: String,
}

/// Parses the numbered rows of `/proc/interrupts`; `NMI:`, `LOC:` and the like are not device interrupts and
/// are skipped.
pub fn interrupts(text: &str) -> Result<Vec<InterruptRow>, ParseError> {
    let mut rows = Vec::new();
    let cores = each_numbered_row(text, |interrupt, _, _| {
        rows.push(InterruptRow { interrupt, counts: Vec::new(), chip: String::new(), action: String::new() });
    })?;
    let mut row = rows.iter_mut();
    for line in text.lines().skip(1) {
        let Some((_, mut rest)) = numbered(line) else { continue };
        let Some(row) = row.next() else { break };
        for &core in &cores {
            match take_count(&mut rest) {
                Some(0) => {}
                Some(count) => row.counts.push((core, count)),
                None => return Err(ParseError::new("one count per core", line)),
            }
        }
        (row.chip, row.action) = chip_and_action(rest);
    }
    Ok(rows)
}

/// Splits `PCI-MSI 49153-edge      virtio2-requests, x`. Chip names may contain blanks, so the split is at
/// the kernel's column padding before the action; old kernels pad with two blanks, rows of one action name
/// with more.
fn chip_and_action(rest: &str) -> (String, String) {
    let rest = rest.trim();
    // `PCI-MSI-0000:31:00.0    0-edge      eth1`: the trigger ends the chip.
    let mut end = 0;
    for token in rest.split_ascii_whitespace() {
        let at = token.as_ptr() as usize - rest.as_ptr() as usize;
        if ["-edge", "-level", "-fasteoi"].iter().any(|trigger| token.ends_with(trigger))
            || matches!(token, "Edge" | "Level")
        {
            end = at + token.len();
            break;
        }
    }
    if end == 0 {
        // No trigger: split at the last wide gap.
        end = rest.rfind("  ").unwrap_or(0);
    }
    let (chip, action) = rest.split_at(end);
    let chip = chip.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    (chip, action.trim().to_owned())
}

/// The interrupt number and the rest of a numbered row.
fn numbered(line: &str) -> Option<(u32, &str)> {
    let (label, rest) = line.split_once(':')?;
    Some((label.trim_start().parse().ok()?, rest))
}

/// Calls `each` with the interrupt number, rest of row, and the cores.
fn each_numbered_row(text: &str, mut each: impl FnMut(u32, &str, &[u32])) -> Result<Vec<u32>, ParseError> {
    let mut lines = text.lines();
    let cores = head_cores(lines.next().unwrap_or_default())?;
    for line in lines {
        if let Some((interrupt, rest)) = numbered(line) {
            each(interrupt, rest, &cores);
        }
    }
    Ok(cores)
}

/// Sum of the numbered rows per core, without building the rows.
pub fn interrupt_sums(text: &str) -> Result<Vec<(u32, u64)>, ParseError> {
    let mut sums = Vec::new();
    let mut short = None;
    let cores = each_numbered_row(text, |interrupt, mut rest, cores| {
        sums.resize(cores.len(), 0u64);
        for sum in &mut sums {
            match take_count(&mut rest) {
                Some(count) => *sum = sum.wrapping_add(count),
                None => short = Some(interrupt),
            }
        }
    })?;
    if let Some(interrupt) = short {
        return Err(ParseError::new("one count per core", &format!("interrupt {interrupt}")));
    }
    sums.resize(cores.len(), 0);
    Ok(cores.into_iter().zip(sums).collect())
}

/// One row of `/proc/softirqs`, by its name (`NET_RX`), per core.
pub fn softirq(text: &str, name: &'static str) -> Result<Vec<(u32, u64)>, ParseError> {
    let mut lines = text.lines();
    let cores = head_cores(lines.next().unwrap_or_default())?;
    for line in lines {
        let Some((label, mut rest)) = line.split_once(':') else { continue };
        if label.trim_start() != name {
            continue;
        }
        return cores
            .into_iter()
            .map(|core| take_count(&mut rest).map(|count| (core, count)))
            .collect::<Option<_>>()
            .ok_or_else(|| ParseError::new("one count per core", line));
    }
    Err(ParseError::new(name, text))
}

/// One row of `/proc/net/softnet_stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SoftnetRow {
    /// Core, where the kernel prints it (column 13).
    pub core: Option<u32>,
    /// Packets processed (column 1).
    pub processed_count: u64,
    /// Dropped, backlog full (column 2).
    pub dropped_count: u64,
    /// Rounds ended by budget or time (column 3).
    pub squeezed_count: u64,
}

/// Parses `/proc/net/softnet_stat`: hexadecimal columns, one row per *online* core. Kernels before 5.10 do
/// not print the core: it follows from the row's position among the online cores.
pub fn softnet(text: &str) -> Result<Vec<SoftnetRow>, ParseError> {
    let mut rows = Vec::new();
    for line in text.lines() {
        let fail = || ParseError::new("hexadecimal columns", line);
        let mut columns = [0u32; 13];
        let mut known = 0;
        let mut tokens = line.split_ascii_whitespace();
        for (slot, token) in columns.iter_mut().zip(&mut tokens) {
            *slot = u32::from_str_radix(token, 16).map_err(|_| fail())?;
            known += 1;
        }
        if known < 3 {
            return Err(fail());
        }
        rows.push(SoftnetRow {
            core: (known >= 13).then_some(columns[12]),
            processed_count: columns[0].into(),
            dropped_count: columns[1].into(),
            squeezed_count: columns[2].into(),
        });
    }
    if rows.is_empty() {
        return Err(ParseError::new("one row per core", text));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const INTERRUPTS: &str = "           CPU0       CPU2\n  \
        0:        261          0   IO-APIC   2-edge      timer\n \
        24:          0          7   PCI-MSI 25165824-edge      PCIe PME, aerdrv, pciehp\n \
        81:          0         12   PCI-MSI-0000:31:00.0    1-edge      eth1.7-TxRx-0\n\
        120:          3          4     GICv3  23 Level     arch_timer\n \
        12:          1          0  xen-dyn-lateeoi    -event     eth0-q0-rx\n\
        NMI:          5          6   Non-maskable interrupts\nERR:          9\n";

    #[test]
    fn reads_numbered_rows() {
        let rows = interrupts(INTERRUPTS).unwrap();
        assert_eq!(rows.len(), 5);
        assert_eq!((rows[0].interrupt, rows[0].action.as_str()), (0, "timer"));
        assert_eq!(rows[1].action, "PCIe PME, aerdrv, pciehp");
        assert_eq!(
            (rows[2].chip.as_str(), rows[2].action.as_str()),
            ("PCI-MSI-0000:31:00.0 1-edge", "eth1.7-TxRx-0")
        );
        assert_eq!(rows[2].counts, [(2, 12)]);
        assert_eq!((rows[3].action.as_str(), rows[3].counts.len()), ("arch_timer", 2));
        assert_eq!(rows[4].action, "eth0-q0-rx");
        assert_eq!(interrupt_sums(INTERRUPTS).unwrap(), [(0, 265), (2, 23)]);
    }

    #[test]
    fn reports_a_truncated_row() {
        let cut = &INTERRUPTS[..INTERRUPTS.find("12   PCI-MSI-0000").unwrap()];
        assert!(interrupts(cut).unwrap_err().to_string().contains("one count per core"));
        assert!(interrupt_sums(cut).is_err());
        assert!(interrupts("").is_err());
        assert!(interrupts("CPUx CPU1\n").is_err());
    }

    #[test]
    fn reads_one_softirq_for_possible_cores() {
        let text = "                    CPU0       CPU1       \n          HI:          1          0\n      NET_RX:       1513     140242\n";
        assert_eq!(softirq(text, "NET_RX").unwrap(), [(0, 1513), (1, 140_242)]);
        assert!(softirq(text, "NET_TX").is_err());
    }

    /// Column counts by kernel: 9 or 10 (2.6), 11 (3.11), 13 (5.10), 15 (6.12).
    #[test]
    fn reads_softnet_rows_of_each_kernel() {
        let zeros = " 00000000".repeat(7);
        let old = softnet(&format!("000015b9 00000001 00000002{zeros}\n")).unwrap();
        assert_eq!((old[0].core, old[0].processed_count, old[0].squeezed_count), (None, 0x15b9, 2));
        let new =
            softnet(&format!("0000000a 00000000 00000000{zeros} 00000000 00000000 0000004f 0 0")).unwrap();
        assert_eq!(new[0].core, Some(79));
        assert!(softnet("").is_err());
        assert!(softnet("0000000g 0 0").is_err());
        assert!(softnet("1 2").is_err());
    }

    proptest! {
        #[test]
        fn never_panics(text in "(CPU[0-9]{1,3} ){0,3}\\n( *[0-9A-Z]{1,4}:[0-9 ]{0,20}[-a-z, :]{0,20}\\n){0,4}|\\PC{0,60}") {
            let _ = interrupts(&text);
            let _ = interrupt_sums(&text);
            let _ = softirq(&text, "NET_RX");
            let _ = softnet(&text);
        }
    }
}
