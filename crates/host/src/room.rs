//! What is left for this process: memory, and processes with threads, by the host and by the cgroups that it is in
//! (Documentation/admin-guide/cgroup-v1, cgroup-v2.rst).

use crate::{
    limits::folders,
    parse::text::{self, Cgroup},
    root::HostRoot,
};

/// What is left; absent where nothing limits it, or it cannot be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Room {
    /// Memory that can be taken without swapping.
    pub memory_bytes: Option<u64>,
    /// Processes and threads of the cgroups.
    pub task_count: Option<u64>,
}

impl Room {
    /// Reads it.
    pub fn of(root: &HostRoot) -> Self {
        let cgroups = root.parse("proc/self/cgroup", text::cgroups).unwrap_or_default();
        let of_host = root.parse("proc/meminfo", |meminfo| text::memory_bytes(meminfo, "MemAvailable")).ok();
        let of_cgroups = [
            left(root, &cgroups, "memory", "memory.max", "memory.current"),
            left(root, &cgroups, "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
        ];
        Self {
            memory_bytes: of_cgroups.into_iter().chain([of_host]).flatten().min(),
            task_count: left(root, &cgroups, "pids", "pids.max", "pids.current"),
        }
    }
}

/// The least that a cgroup or one of its ancestors leaves.
fn left(root: &HostRoot, cgroups: &[Cgroup], controller: &str, limit: &str, used: &str) -> Option<u64> {
    let of_folder = |folder: String| {
        let limit = root.parse(&format!("{folder}/{limit}"), text::memory_limit).ok().flatten()?;
        let used = root.number::<u64>(&format!("{folder}/{used}")).ok()?;
        Some(limit.saturating_sub(used))
    };
    folders(cgroups, controller).into_iter().filter_map(of_folder).min()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_tightest_of_host_and_cgroups_is_what_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let room = || Room::of(&HostRoot::directory(folder.path()));
        assert_eq!(room(), Room::default());
        write("proc/meminfo", "MemTotal: 100 kB\nMemAvailable: 60 kB\n");
        write("proc/self/cgroup", "0::/a/b\n");
        assert_eq!(room(), Room { memory_bytes: Some(60 << 10), task_count: None });
        write("sys/fs/cgroup/a/b/memory.max", "max\n");
        write("sys/fs/cgroup/a/b/memory.current", "5000\n");
        write("sys/fs/cgroup/a/memory.max", "20000\n");
        write("sys/fs/cgroup/a/memory.current", "15000\n");
        write("sys/fs/cgroup/a/b/pids.max", "100\n");
        write("sys/fs/cgroup/a/b/pids.current", "30\n");
        assert_eq!(room(), Room { memory_bytes: Some(5000), task_count: Some(70) });
    }
}
