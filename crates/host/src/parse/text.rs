//! Short texts: node memory, cache sizes, CPU facts, limits and cgroups.

use super::ParseError;

/// A value in kB of `/proc/meminfo` or of a node's `meminfo`
/// (`Node 0 MemTotal:  64 kB`), in bytes.
pub fn memory_bytes(text: &str, name: &'static str) -> Result<u64, ParseError> {
    for line in text.lines() {
        let Some((label, value)) = line.split_once(':') else { continue };
        if label.split_ascii_whitespace().next_back() != Some(name) {
            continue;
        }
        let kilobytes: Option<u64> = value.trim().strip_suffix("kB").and_then(|v| v.trim().parse().ok());
        return kilobytes
            .and_then(|kilobytes| kilobytes.checked_mul(1024))
            .ok_or_else(|| ParseError::new("a number of kB", line));
    }
    Err(ParseError::new(name, text))
}

/// `32768K`, `36M`: the size of a cache, in bytes.
pub fn cache_bytes(text: &str) -> Result<u64, ParseError> {
    let text = text.trim();
    let fail = || ParseError::new("a size such as 32768K", text);
    let (number, scale) = match text.char_indices().next_back() {
        Some((at, 'K')) => (&text[..at], 1 << 10),
        Some((at, 'M')) => (&text[..at], 1 << 20),
        Some((at, 'G')) => (&text[..at], 1 << 30),
        _ => (text, 1),
    };
    number.parse::<u64>().ok().and_then(|number| number.checked_mul(scale)).ok_or_else(fail)
}

/// Distances of a node: numbers separated by blanks.
pub fn distances(text: &str) -> Result<Vec<u32>, ParseError> {
    let row: Result<Vec<u32>, _> = text.split_ascii_whitespace().map(str::parse).collect();
    match row {
        Ok(row) if !row.is_empty() => Ok(row),
        _ => Err(ParseError::new("distances such as 10 21", text.trim())),
    }
}

/// Data of the first block of `/proc/cpuinfo`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuInfo {
    /// Model name, where the architecture has one.
    pub model: Option<String>,
    /// The x86 flag `hypervisor`; absent on other architectures.
    pub virtual_machine: Option<bool>,
    /// The x86 flag `lm`: a 64-bit x86, whose pages are 4 KiB.
    pub x86_64: bool,
}

/// Parses the first processor of `/proc/cpuinfo`, which may be truncated after it.
pub fn cpu_info(text: &str) -> CpuInfo {
    let mut info = CpuInfo::default();
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        match name.trim() {
            // x86 and others; s390 and POWER; MIPS; some Arm boards.
            "model name" | "cpu" | "cpu model" | "Model" if info.model.is_none() && !value.is_empty() => {
                info.model = Some(value.to_owned());
            }
            "flags" if info.virtual_machine.is_none() => {
                info.virtual_machine = Some(value.split(' ').any(|flag| flag == "hypervisor"));
                info.x86_64 = value.split(' ').any(|flag| flag == "lm");
            }
            _ => {}
        }
    }
    info
}

/// A field of `/proc/self/status`.
pub fn status_field<'a>(text: &'a str, name: &'static str) -> Result<&'a str, ParseError> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(field, _)| *field == name)
        .map(|(_, value)| value.trim())
        .ok_or_else(|| ParseError::new(name, text))
}

/// The soft limit of a row of `/proc/self/limits` in bytes; `None` when unlimited.
pub fn soft_limit(text: &str, row: &'static str) -> Result<Option<u64>, ParseError> {
    let rest =
        text.lines().find_map(|line| line.strip_prefix(row)).ok_or_else(|| ParseError::new(row, text))?;
    match rest.split_ascii_whitespace().next() {
        Some("unlimited") => Ok(None),
        Some(value) => value.parse().map(Some).map_err(|_| ParseError::new("a limit", value)),
        None => Err(ParseError::new("a limit", rest)),
    }
}

/// `cpu.max` of cgroup version 2: quota and period in microseconds, or `max`.
/// In thousandths of a core; `None` when unlimited.
pub fn cpu_max_millicores(text: &str) -> Result<Option<u64>, ParseError> {
    let text = text.trim();
    let fail = || ParseError::new("a quota and a period, or max", text);
    let (quota, period) = text.split_once(' ').ok_or_else(fail)?;
    if quota == "max" {
        return Ok(None);
    }
    let quota: i64 = quota.parse().map_err(|_| fail())?;
    let period: i64 = period.trim().parse().map_err(|_| fail())?;
    quota_millicores(quota, period).ok_or_else(fail)
}

/// Counters of a CPU quota.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CpuStat {
    /// `nr_periods`.
    pub(crate) period_count: u64,
    /// `nr_throttled`.
    pub(crate) throttled_count: u64,
    /// `throttled_usec` of version 2, `throttled_time` of version 1.
    pub(crate) throttled_ns: u64,
}

/// `cpu.stat` of either version: names and numbers, one pair a line.
pub(crate) fn cpu_stat(text: &str) -> Result<CpuStat, ParseError> {
    let number = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|value| value.trim().parse::<u64>().ok())
    };
    let nanoseconds =
        number("throttled_time").or(number("throttled_usec").map(|micros| micros.saturating_mul(1000)));
    match (number("nr_periods"), number("nr_throttled"), nanoseconds) {
        (Some(period_count), Some(throttled_count), Some(throttled_ns)) => {
            Ok(CpuStat { period_count, throttled_count, throttled_ns })
        }
        _ => Err(ParseError::new("nr_periods, nr_throttled and throttled_usec", text)),
    }
}

/// Quota over period in thousandths of a core: `Some(None)` for the kernel's
/// -1 (unlimited), `None` when the two are invalid.
pub(crate) fn quota_millicores(quota: i64, period: i64) -> Option<Option<u64>> {
    if quota == -1 {
        return Some(None);
    }
    if quota <= 0 || period <= 0 {
        return None;
    }
    let millicores = i128::from(quota) * 1000 / i128::from(period);
    u64::try_from(millicores).ok().map(Some)
}

/// `memory.max` (a number or `max`) and `memory.limit_in_bytes` (a number close to 2^63 when unlimited);
/// `None` when unlimited.
pub fn memory_limit(text: &str) -> Result<Option<u64>, ParseError> {
    let text = text.trim();
    // Version 1 writes PAGE_COUNTER_MAX: LONG_MAX rounded down to pages.
    const UNLIMITED: u64 = (i64::MAX as u64) & !0xffff;
    match text {
        "max" => Ok(None),
        _ => match text.parse::<u64>() {
            Ok(bytes) if bytes >= UNLIMITED => Ok(None),
            Ok(bytes) => Ok(Some(bytes)),
            Err(_) => Err(ParseError::new("a number of bytes, or max", text)),
        },
    }
}

/// A line of `/proc/self/cgroup`: `4:memory:/a/b`, `0::/a/b`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    /// Controllers, empty for version 2.
    pub controllers: Vec<String>,
    /// Path below the hierarchy's mount.
    pub path: String,
}

/// Reads `/proc/self/cgroup`.
pub fn cgroups(text: &str) -> Result<Vec<Cgroup>, ParseError> {
    text.lines()
        .map(|line| {
            let mut parts = line.splitn(3, ':');
            match (parts.next(), parts.next(), parts.next()) {
                (Some(_), Some(controllers), Some(path)) if path.starts_with('/') => Ok(Cgroup {
                    controllers: controllers
                        .split(',')
                        .filter(|controller| !controller.is_empty())
                        .map(str::to_owned)
                        .collect(),
                    path: path.to_owned(),
                }),
                _ => Err(ParseError::new("hierarchy:controllers:/path", line)),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_memory_of_hosts_and_nodes() {
        let text = "Node 0 MemTotal:       65805212 kB\nNode 0 MemFree:        1 kB\n";
        assert_eq!(memory_bytes(text, "MemTotal"), Ok(65_805_212 * 1024));
        assert_eq!(memory_bytes("MemTotal: 16 kB\n", "MemTotal"), Ok(16_384));
        assert!(memory_bytes("MemTotal: many kB", "MemTotal").is_err());
        assert!(memory_bytes("", "MemTotal").is_err());
        assert_eq!(
            (cache_bytes("32768K\n"), cache_bytes("36M"), cache_bytes("7")),
            (Ok(32 << 20), Ok(36 << 20), Ok(7))
        );
        assert!(cache_bytes("").is_err() && cache_bytes("99999999999999999999K").is_err());
    }

    #[test]
    fn reads_limits() {
        assert_eq!(cpu_max_millicores("150000 100000\n"), Ok(Some(1500)));
        assert_eq!(cpu_max_millicores("max 100000"), Ok(None));
        assert!(cpu_max_millicores("1").is_err() && cpu_max_millicores("5 0").is_err());
        assert_eq!(quota_millicores(-1, 100_000), Some(None));
        assert_eq!((memory_limit("max\n"), memory_limit("9223372036854771712")), (Ok(None), Ok(None)));
        assert_eq!(memory_limit("1073741824"), Ok(Some(1 << 30)));
        let text = "Limit      Soft Limit   Hard Limit   Units\nMax locked memory         8388608              8388608              bytes\nMax processes   unlimited unlimited processes\n";
        assert_eq!(soft_limit(text, "Max locked memory"), Ok(Some(8_388_608)));
        assert_eq!(soft_limit(text, "Max processes"), Ok(None));
        assert!(soft_limit(text, "Max file size").is_err());
    }

    #[test]
    fn reads_cgroups_of_both_versions() {
        let found = cgroups("4:cpu,cpuacct:/docker/ab\n1:name=systemd:/x\n0::/user.slice\n").unwrap();
        assert_eq!(found[0].controllers, ["cpu", "cpuacct"]);
        assert!(found[2].controllers.is_empty() && found[2].path == "/user.slice");
        assert!(cgroups("garbage").is_err());
    }

    #[test]
    fn reads_the_first_processor() {
        let info = cpu_info(
            "processor\t: 0\nmodel name\t: AMD Opteron\nflags\t\t: fpu lm hypervisor\n\nprocessor\t: 1\nmodel name\t: Other\n",
        );
        assert_eq!(
            info,
            CpuInfo { model: Some("AMD Opteron".into()), virtual_machine: Some(true), x86_64: true }
        );
        assert_eq!(cpu_info("Features : fp asimd\nCPU part : 0xd0c\n"), CpuInfo::default());
    }

    proptest! {
        #[test]
        fn never_panics(text in "[-0-9a-zA-Z:,/ \\n]{0,80}|\\PC{0,60}") {
            let _ = memory_bytes(&text, "MemTotal");
            let _ = cache_bytes(&text);
            let _ = distances(&text);
            let _ = cpu_info(&text);
            let _ = status_field(&text, "Cpus_allowed_list");
            let _ = soft_limit(&text, "Max locked memory");
            let _ = cpu_max_millicores(&text);
            let _ = memory_limit(&text);
            let _ = cgroups(&text);
        }
    }
}
