//! CPU quota throttling: `cpu.stat` of the cgroups of this process (cgroup-v2.rst "CPU Interface Files";
//! version 1: Documentation/scheduler/sched-bwc.rst).

use clearstream_schema::counters::CpuThrottling;

use crate::{limits, parse::text, root::HostRoot};

/// Reads the throttling of the tightest quota above this process.
#[derive(Debug)]
pub struct ThrottlingReader {
    root: HostRoot,
    /// Folders below the root whose cgroup has a quota, with the quota.
    folders: Vec<(String, u64)>,
}

impl ThrottlingReader {
    /// Finds the cgroups of this process that currently have a quota.
    pub fn open(root: &HostRoot) -> Self {
        let cgroups = root.parse("proc/self/cgroup", text::cgroups).unwrap_or_default();
        let with_quota = |prefix: &str| -> Vec<(String, u64)> {
            limits::folders(&cgroups, "cpu")
                .into_iter()
                .map(|folder| format!("{prefix}{folder}"))
                .filter_map(|folder| Some((folder.clone(), quota(root, &folder)?)))
                .collect()
        };
        let mut folders = with_quota("");
        // A namespace with its own sysfs (a lab's host) hides the hierarchy.
        if folders.is_empty() && !root.exists("sys/fs/cgroup/cgroup.procs") {
            folders = with_quota("proc/1/root/");
        }
        Self { root: root.clone(), folders }
    }

    /// Counters since creation of the cgroup, of the one throttled most.
    pub fn read(&self) -> Option<CpuThrottling> {
        let read = |(folder, quota): &(String, u64)| {
            let counters = self.root.parse(&format!("{folder}/cpu.stat"), text::cpu_stat).ok()?;
            let group = folder.split_once("sys/fs/cgroup").map_or(folder.as_str(), |(_, group)| group);
            Some(CpuThrottling {
                group: if group.is_empty() { "/".to_owned() } else { group.to_owned() },
                quota_millicores: *quota,
                period_count: counters.period_count,
                throttled_count: counters.throttled_count,
                throttled_ns: counters.throttled_ns,
            })
        };
        self.folders.iter().filter_map(read).max_by_key(|throttling| throttling.throttled_count)
    }
}

fn quota(root: &HostRoot, folder: &str) -> Option<u64> {
    if let Ok(quota) = root.parse(&format!("{folder}/cpu.max"), text::cpu_max_millicores) {
        return quota;
    }
    let number = |name| root.number::<i64>(&format!("{folder}/{name}")).ok();
    text::quota_millicores(number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::tests::tree;

    /// The quota of a parent slice, as set by `systemd-run -p CPUQuota=60%`.
    #[test]
    fn the_parent_group_has_the_quota() {
        let (_folder, root) = tree(&[
            ("proc/self/cgroup", "0::/work.slice/job.scope\n"),
            ("sys/fs/cgroup/work.slice/cpu.max", "60000 100000\n"),
            (
                "sys/fs/cgroup/work.slice/cpu.stat",
                "usage_usec 9\nuser_usec 4\nsystem_usec 5\nnr_periods 50\nnr_throttled 45\nthrottled_usec 1800000\n",
            ),
            ("sys/fs/cgroup/work.slice/job.scope/cpu.max", "max 100000\n"),
        ]);
        let throttling = ThrottlingReader::open(&root).read().unwrap();
        assert_eq!((throttling.group.as_str(), throttling.quota_millicores), ("/work.slice", 600));
        assert_eq!((throttling.period_count, throttling.throttled_count), (50, 45));
        assert_eq!(throttling.throttled_ns, 1_800_000_000);
    }

    #[test]
    fn version_one_counts_in_nanoseconds() {
        let (_folder, root) = tree(&[
            ("proc/self/cgroup", "3:cpu,cpuacct:/job\n0::/\n"),
            ("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "25000\n"),
            ("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "50000\n"),
            ("sys/fs/cgroup/cpu/job/cpu.stat", "nr_periods 8\nnr_throttled 7\nthrottled_time 123456789\n"),
        ]);
        let throttling = ThrottlingReader::open(&root).read().unwrap();
        assert_eq!((throttling.quota_millicores, throttling.throttled_ns), (500, 123_456_789));
        let (_folder, root) = tree(&[
            ("proc/self/cgroup", "3:cpu:/\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
        ]);
        assert_eq!(ThrottlingReader::open(&root).read(), None);
    }
}
