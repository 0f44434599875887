//! Whether this host has room for the ranks of a process, before anything is made: memory, threads, descriptors.

use clearstream_host::{HostRoot, room::Room};
use clearstream_schema::{
    control::{Failure, FailureKind},
    human,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Of a rank besides its buffers: its stack, its histograms.
const RANK_BYTES: u64 = 256 << 10;
/// Addresses of a thread's stack (std: 2 MiB) with its guard.
const STACK_BYTES: u64 = (2 << 20) + (64 << 10);
/// Besides those of the ranks: streams, sockets, folders, and threads of the agent.
const OWN_DESCRIPTORS: u64 = 64;
const OWN_TASKS: u64 = 16;
/// From here on the kernel gives huge pages ([`clearstream_sys::memory`]).
const HUGE_LENGTH: u64 = 128 << 10;
const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// What ranks need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Need {
    pub(crate) ranks: u64,
    /// Of buffers, each.
    pub(crate) bytes: u64,
    /// Each.
    pub(crate) descriptors: u64,
}

/// What there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Limits {
    room: Room,
    descriptors: Option<u64>,
    tasks: Option<u64>,
    addresses: Option<u64>,
}

/// Memory that a buffer takes.
pub(crate) fn buffer_bytes(length: u64) -> u64 {
    if length >= HUGE_LENGTH { length.next_multiple_of(HUGE_PAGE_BYTES) } else { length }
}

/// Refuses ranks that have no room. The soft limit of descriptors is raised where that is enough.
///
/// # Errors
/// What they need, what there is, and which limit that is.
pub(crate) fn check(need: Need) -> Result<(), Failure> {
    raise_descriptors(need);
    let limit = |resource| getrlimit(resource).current;
    let limits = Limits {
        room: Room::of(&HostRoot::live()),
        descriptors: limit(Resource::Nofile),
        tasks: limit(Resource::Nproc).filter(|_| !rustix::process::geteuid().is_root()),
        addresses: limit(Resource::As),
    };
    match lack(need, limits) {
        Some(message) => Err(Failure { kind: FailureKind::Unsupported, message }),
        None => Ok(()),
    }
}

fn descriptors(need: Need) -> u64 {
    need.ranks.saturating_mul(need.descriptors).saturating_add(OWN_DESCRIPTORS)
}

fn raise_descriptors(need: Need) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|current| current < descriptors(need)) {
        // What is missing then is reported.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}

/// The first thing that is missing.
fn lack(need: Need, limits: Limits) -> Option<String> {
    let Need { ranks, bytes, .. } = need;
    let memory = ranks.saturating_mul(bytes.saturating_add(RANK_BYTES));
    let addresses = memory.saturating_add(ranks.saturating_mul(STACK_BYTES));
    let tasks = ranks.saturating_add(OWN_TASKS);
    let says = |needed: String, left: String, limit: &str| {
        format!(
            "{} need {needed}, and {left} ({limit}): choose fewer --tasks, or raise the limit",
            human::count(ranks, "rank")
        )
    };
    let of_bytes = |needed: u64, left: Option<u64>, limit: &str| {
        let left = left.filter(|left| *left < needed)?;
        Some(says(human::bytes(needed), format!("{} are left", human::bytes(left)), limit))
    };
    let of_count = |needed: u64, left: Option<u64>, what: &str, limit: &str| {
        let left = left.filter(|left| *left < needed)?;
        Some(says(human::count(needed, what), format!("{left} are allowed"), limit))
    };
    of_count(tasks, limits.room.task_count, "thread", "pids.max of the cgroup")
        .or_else(|| of_count(tasks, limits.tasks, "thread", "`ulimit -u`"))
        .or_else(|| of_count(descriptors(need), limits.descriptors, "open file", "`ulimit -Hn`"))
        .or_else(|| of_bytes(memory, limits.room.memory_bytes, "memory of the host and of its cgroup"))
        .or_else(|| of_bytes(addresses, limits.addresses, "addresses, `ulimit -v`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_its_limit() {
        let need = Need { ranks: 1024, bytes: 4 << 20, descriptors: 2 };
        assert_eq!(lack(need, Limits::default()), None);
        let all = Limits {
            room: Room { memory_bytes: Some(8 << 30), task_count: Some(2000) },
            descriptors: Some(4096),
            tasks: Some(4096),
            addresses: Some(1 << 40),
        };
        assert_eq!(lack(need, all), None);
        let room = |memory_bytes, task_count| Room {
            memory_bytes: Some(memory_bytes),
            task_count: Some(task_count),
        };
        for (limits, parts) in [
            (Limits { room: room(1 << 30, 2000), ..all }, ["4.25 GiB", "1 GiB are left", "memory"]),
            (Limits { room: room(8 << 30, 500), ..all }, ["1040 threads", "500 are allowed", "pids.max"]),
            (Limits { tasks: Some(100), ..all }, ["1040 threads", "100 are allowed", "ulimit -u"]),
            (
                Limits { descriptors: Some(1024), ..all },
                ["2112 open files", "1024 are allowed", "ulimit -Hn"],
            ),
            (Limits { addresses: Some(6 << 30), ..all }, ["6.31 GiB", "6 GiB are left", "ulimit -v"]),
        ] {
            let message = lack(need, limits).unwrap();
            for part in parts {
                assert!(
                    message.starts_with("1024 ranks need") && message.contains(part),
                    "{part}: {message}"
                );
            }
        }
    }
}
