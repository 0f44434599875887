//! A private world for a hostile controller: network and mount namespaces of its
//! own, with copies in the place of everything that belongs to the machine.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use clearstream_testkit::again::{assert_passed, one_test};

/// Set in the process that is inside.
const INSIDE: &str = "CLEARSTREAM_RIGHTS_INSIDE";

/// Runs the body in a private world: the first process starts itself again there.
pub(crate) fn inside(module: &str, test: &str, body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "--propagation", "private", "--"]);
    assert_passed(&command.args(one_test(module, test)).env(INSIDE, "1").output().unwrap());
}

/// Runs a tool of the system; its output.
pub(crate) fn tool(line: &str) -> String {
    let mut parts = line.split(' ');
    let output = Command::new(parts.next().unwrap()).args(parts).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Folders that belong to the whole machine: copies stand in their place.
const SHARED: [&str; 6] = [
    "/proc/sys/kernel",
    "/proc/sys/vm",
    "/proc/sys/fs",
    "/proc/sys/user",
    "/proc/sys/dev",
    "/proc/sys/debug",
];

/// Files below folders that are replaced as a whole, with their text.
const PLAYED: [(&str, &str); 14] = [
    ("/proc/irq/9/smp_affinity", "3"),
    ("/proc/irq/9/smp_affinity_list", "0-1"),
    ("/proc/irq/9/spurious", "count 0"),
    ("/proc/irq/default_smp_affinity", "3"),
    ("/sys/kernel/uevent_helper", ""),
    ("/sys/kernel/mm/ksm/run", "0"),
    ("/sys/kernel/debug/x", "0"),
    ("/sys/module/tcp_cubic/parameters/beta", "717"),
    ("/sys/module/x/parameters/path", "/sbin/x"),
    ("/sys/power/state", "freeze mem"),
    ("/sys/bus/pci/rescan", ""),
    ("/sys/devices/system/cpu/cpu1/online", "1"),
    ("/sys/fs/x", "0"),
    ("/sys/block/sda/queue/scheduler", "none"),
];

/// Replaces what is not of this namespace, and makes interfaces, a foreign table
/// of nft and a route to be kept.
pub(crate) fn make(scratch: &Path) {
    tool("mount -t sysfs sysfs /sys");
    for folder in SHARED.iter().filter(|folder| Path::new(folder).is_dir()) {
        let copy = scratch.join(folder.trim_start_matches('/'));
        copy_readable(Path::new(folder), &copy, 3);
        tool(&format!("mount --bind {} {folder}", copy.display()));
    }
    let mut replaced: Vec<String> = Vec::new();
    for (path, text) in PLAYED {
        let copy = scratch.join(path.trim_start_matches('/'));
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        fs::write(copy, format!("{text}\n")).unwrap();
        let names: Vec<&str> = path.split('/').collect();
        // `/proc/irq`, `/sys/kernel`; of the devices only the processors.
        let depth = if path.starts_with("/sys/devices") { 4 } else { 3 };
        let folder = names[..depth].join("/");
        if !replaced.contains(&folder) && Path::new(&folder).is_dir() {
            replaced.push(folder);
        }
    }
    for folder in replaced {
        let copy = scratch.join(folder.trim_start_matches('/'));
        tool(&format!("mount --bind {} {folder}", copy.display()));
    }
    tool("ip link set lo up");
    tool("ip link add v0 type veth peer name v1");
    tool("ip address add 198.51.100.1/24 dev v0");
    tool("ip route add blackhole 203.0.113.0/24");
    tool("nft add table inet foreign");
    tool("nft add chain inet foreign keep");
}

fn copy_readable(from: &Path, to: &Path, depth: usize) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let (path, copy) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() && depth > 0 {
            copy_readable(&path, &copy, depth - 1);
        } else if path.is_file() {
            // Some can only be written to.
            fs::write(copy, fs::read(&path).unwrap_or_default()).unwrap();
        }
    }
}

/// All that could be changed: files by their path, and what the tools show.
pub(crate) fn snapshot() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for folder in ["/proc/sys", "/proc/irq"] {
        read_all(Path::new(folder), 8, &mut found);
    }
    for (path, _) in PLAYED {
        found.insert(path.to_owned(), read(Path::new(path)));
    }
    for interface in ["lo", "v0", "v1"] {
        let folder = PathBuf::from("/sys/class/net").join(interface);
        for part in ["", "queues/rx-0", "queues/tx-0", "queues/tx-0/byte_queue_limits"] {
            read_all(&folder.join(part), 0, &mut found);
        }
    }
    for line in [
        "ip -o address",
        "ip route show table all",
        "ip rule",
        "ip nexthop",
        "nft list ruleset",
        "tc qdisc show",
        "ethtool -k v0",
    ] {
        found.insert(line.to_owned(), tool(line));
    }
    // They count.
    found.retain(|path, _| {
        !["/nf_conntrack_count", "/carrier_changes", "/carrier_up_count", "/carrier_down_count"]
            .iter()
            .any(|counter| path.ends_with(counter))
    });
    found
}

fn read(path: &Path) -> String {
    fs::read(path).map_or_else(
        |error| format!("unreadable: {}", error.kind()),
        |bytes| String::from_utf8_lossy(&bytes).into_owned(),
    )
}

fn read_all(folder: &Path, depth: usize, found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_file() => drop(found.insert(path.display().to_string(), read(&path))),
            Ok(kind) if kind.is_dir() && depth > 0 => read_all(&path, depth - 1, found),
            _ => {}
        }
    }
}

/// Names of what differs.
pub(crate) fn differences(
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
) -> Vec<String> {
    let names: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    names.into_iter().filter(|name| before.get(*name) != after.get(*name)).cloned().collect()
}
