//! Machine of the measurements.

use std::{fs, process::Command};

use crate::program;

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// First line that a command prints, on whichever stream.
pub(crate) fn first_line(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    text.lines().find(|line| !line.trim().is_empty()).map(|line| line.trim().to_owned())
}

/// Rows as a table.
pub(crate) fn table(rows: &[(&'static str, String)]) -> String {
    let rows = rows.iter().map(|(key, value)| format!("| {key} | {} |\n", value.replace('|', "/")));
    ["| | |\n|---|---|\n".to_owned()].into_iter().chain(rows).collect()
}

/// The versions of the flow engine's peers.
pub(crate) fn flow_peers() -> Vec<(&'static str, String)> {
    let version =
        |program, argument| first_line(program, &[argument]).unwrap_or_else(|| "unknown".to_owned());
    let mut rows = vec![
        ("iperf3", version("iperf3", "--version")),
        ("iperf", version("iperf", "-v")),
        ("nuttcp", version("nuttcp", "-V")),
    ];
    if program::is_in_path("tcp_stream") {
        rows.push(("neper", version("tcp_stream", "--version")));
    }
    rows
}

/// Rows of key and value.
pub(crate) fn machine() -> Vec<(&'static str, String)> {
    let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        cpuinfo.lines().find_map(|line| {
            line.strip_prefix(name)?.split_once(':').map(|(_, value)| value.trim().to_owned())
        })
    };
    let cores = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let cache = read("/sys/devices/system/cpu/cpu0/cache/index3/size");
    let governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    let unknown = || "unknown".to_owned();
    let clean = first_line("git", &["status", "--porcelain", "--untracked-files=no"]).is_none();
    let commit = first_line("git", &["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(unknown);
    vec![
        ("date", first_line("date", &["-u", "+%Y-%m-%d %H:%M UTC"]).unwrap_or_else(unknown)),
        ("commit", if clean { commit } else { format!("{commit} with changes") }),
        ("CPU", field("model name").unwrap_or_else(unknown)),
        ("cores", cores.to_string()),
        ("last-level cache", cache.unwrap_or_else(unknown)),
        (
            "hypervisor",
            if cpuinfo.contains(" hypervisor") { "yes, a virtual machine" } else { "no" }.to_owned(),
        ),
        ("frequency governor", governor.unwrap_or_else(unknown)),
        ("kernel", read("/proc/sys/kernel/osrelease").unwrap_or_else(unknown)),
        (
            "default congestion control",
            read("/proc/sys/net/ipv4/tcp_congestion_control").unwrap_or_else(unknown),
        ),
        ("load before", read("/proc/loadavg").unwrap_or_else(unknown)),
    ]
}
