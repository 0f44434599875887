//! Pages locked in physical memory.
#![cfg(not(miri))]

use std::{
    fs,
    process::{Command, Stdio},
};

use clearstream_iwarp::memory::{Access, Buffer, MemoryError, Region};

use clearstream_testkit::again::{assert_passed, one_test};

use crate::memory::{all, table};

/// KiB of this process that are locked now (proc_pid_status(5)).
fn locked_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Whether the test runs in the process of its own that it starts here: nothing
/// else is locked there, and a limit of 64 KiB applies to root too.
fn alone(test: &str) -> bool {
    const MARK: &str = "CLEARSTREAM_TEST_ALONE";
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let mut command = if rustix::process::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", "-ipc_lock", "--inh-caps", "-ipc_lock", "prlimit"]);
        command
    } else {
        Command::new("prlimit")
    };
    command.arg("--memlock=65536:65536").args(one_test(module_path!(), test));
    assert_passed(&command.stdin(Stdio::null()).env(MARK, "").output().unwrap());
    false
}

#[test]
fn pinned_pages_are_counted_by_the_kernel_until_deregistered() {
    if !alone("pinned_pages_are_counted_by_the_kernel_until_deregistered") {
        return;
    }
    let (table, domain) = table();
    let region = Region::new(32 << 10).unwrap();
    assert_eq!(locked_kib(), 0);
    let memory = region.memory().pin().unwrap();
    assert!(memory.is_pinned());
    let pages = locked_kib();
    assert!((32..=36).contains(&pages), "{pages}");
    let stag = table.register(domain, memory, all(), 0).unwrap();
    assert!(table.registration(stag).unwrap().pinned);

    // The same pages for a second tag: they stay locked until both are
    // deregistered.
    let second = table.register(domain, region.memory().pin().unwrap(), Access::REMOTE_READ, 0).unwrap();
    assert_eq!(locked_kib(), pages);
    table.deregister(stag).unwrap();
    assert_eq!(locked_kib(), pages);
    table.deregister(second).unwrap();
    assert_eq!(locked_kib(), 0);

    // Memory that was never registered, and a buffer's.
    drop(region.memory().pin().unwrap());
    assert_eq!(locked_kib(), 0);
    let buffer = Buffer::pinned(&table, domain, 5000).unwrap();
    assert!(locked_kib() >= 8);
    drop(buffer);
    assert_eq!(locked_kib(), 0);
}

#[test]
fn a_pinning_error_is_reported() {
    if !alone("a_pinning_error_is_reported") {
        return;
    }
    let (table, domain) = table();
    let region = Region::new(1 << 20).unwrap();
    let refused = region.memory().pin().unwrap_err();
    assert!(matches!(refused, MemoryError::NotPinned { length_bytes, .. } if length_bytes == 1 << 20));
    assert!(refused.to_string().contains("ulimit -l"), "{refused}");
    assert!(Buffer::pinned(&table, domain, 1 << 20).is_err());
    assert_eq!((locked_kib(), table.tag_count()), (0, 0));
    // Without pinning it works.
    table.register(domain, region.memory(), all(), 0).unwrap();
}
