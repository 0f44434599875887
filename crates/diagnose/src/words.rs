//! Numbers as people read them, for sentences.

/// `12.3 Gb/s`.
pub(crate) fn rate(bps: f64) -> String {
    match bps {
        r if r >= 999.5e6 => format!("{:.2} Gb/s", r / 1e9),
        r if r >= 999.5e3 => format!("{:.0} Mb/s", r / 1e6),
        r => format!("{:.0} kb/s", r / 1e3),
    }
}

/// `38.5 MiB`.
pub(crate) fn bytes(count: u64) -> String {
    let value = count as f64;
    match count {
        0..1024 => format!("{count} B"),
        1024..1_048_576 => format!("{:.0} KiB", value / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", value / 1_048_576.0),
        _ => format!("{:.2} GiB", value / 1_073_741_824.0),
    }
}

/// `17.0 ms`.
pub(crate) fn time(nanoseconds: u64) -> String {
    let value = nanoseconds as f64;
    match nanoseconds {
        0..1_000_000 => format!("{:.0} us", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", value / 1e6),
        _ => format!("{:.1} s", value / 1e9),
    }
}

/// `47 %`.
pub(crate) fn percent(ratio: f64) -> String {
    format!("{:.0} %", ratio * 100.0)
}
