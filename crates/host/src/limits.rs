//! Limits of containers, cgroups and namespaces on this process
//! (Documentation/admin-guide/cgroup-v1, cgroup-v2.rst, namespaces(7)).

use clearstream_schema::host::Limits;

use crate::{
    missing::Missing,
    parse::{
        cpuset,
        text::{self, Cgroup, CpuInfo},
    },
    root::HostRoot,
};

const CGROUP: &str = "sys/fs/cgroup";

/// Inode numbers of the initial namespaces (linux/proc_ns.h, and since 6.18
/// linux/nsfs.h for the network).
const FIRST_PROCESS_NAMESPACE: &str = "pid:[4026531836]";
const FIRST_NETWORK_NAMESPACE: &str = "net:[4026531833]";

/// Files created by container engines, with the container type they indicate.
const ENGINE_FILES: &[(&str, &str)] = &[(".dockerenv", "docker"), ("run/.containerenv", "podman")];

/// Components of cgroup paths, with the container type they indicate; the outermost first.
const ENGINE_PATHS: &[(&str, &str)] = &[
    ("kubepods", "kubernetes"),
    ("docker", "docker"),
    ("libpod", "podman"),
    ("containerd", "containerd"),
    ("lxc", "lxc"),
    ("slurm", "slurm"),
];

/// Reads the limits. `allowed_cores` is empty when it could not be determined.
pub(crate) fn read(root: &HostRoot, cpu: &CpuInfo, missing: &mut Missing) -> Limits {
    let status = |name| {
        root.parse("proc/self/status", move |status| text::status_field(status, name).and_then(cpuset::list))
    };
    let cgroups =
        missing.keep_if_present("cgroups", root.parse("proc/self/cgroup", text::cgroups)).unwrap_or_default();
    let locked = root.parse("proc/self/limits", |limits| text::soft_limit(limits, "Max locked memory"));
    Limits {
        allowed_cores: missing.keep("allowed cores", status("Cpus_allowed_list")).unwrap_or_default(),
        isolated_cores: missing
            .keep_if_present("isolated cores", root.parse("sys/devices/system/cpu/isolated", cpuset::list))
            .unwrap_or_default(),
        allowed_nodes: missing.keep("allowed nodes", status("Mems_allowed_list")).unwrap_or_default(),
        locked_memory_bytes: missing.keep("locked memory limit", locked).flatten(),
        cpu_quota_millicores: cpu_quota(root, &cgroups, missing),
        memory_limit_bytes: memory_limit(root, &cgroups, missing),
        own_network_namespace: own_network_namespace(root),
        container: container(root, &cgroups),
        virtual_machine: cpu.virtual_machine,
    }
}

/// Folders from a process's cgroup up to the root of its hierarchy. Inside a container the path may name
/// groups that are not visible: those are omitted.
pub(crate) fn folders(cgroups: &[Cgroup], controller: &str) -> Vec<String> {
    let mut folders = Vec::new();
    for group in cgroups {
        let mounts: Vec<String> = if group.controllers.is_empty() {
            // Version 2 only, or in addition to version 1.
            vec![CGROUP.to_owned(), format!("{CGROUP}/unified")]
        } else if group.controllers.iter().any(|name| name == controller) {
            vec![format!("{CGROUP}/{}", group.controllers.join(",")), format!("{CGROUP}/{controller}")]
        } else {
            continue;
        };
        for mount in mounts {
            let mut path = group.path.trim_end_matches('/');
            folders.push(format!("{mount}{path}"));
            while let Some((parent, _)) = path.rsplit_once('/') {
                folders.push(format!("{mount}{parent}"));
                path = parent;
            }
        }
    }
    folders.dedup();
    folders
}

/// The tightest CPU quota of the cgroup and its ancestors.
fn cpu_quota(root: &HostRoot, cgroups: &[Cgroup], missing: &mut Missing) -> Option<u64> {
    let quotas = folders(cgroups, "cpu").into_iter().filter_map(|folder| {
        let second = root.parse(&format!("{folder}/cpu.max"), text::cpu_max_millicores);
        let second = missing.keep_if_present("cpu quota", second).flatten();
        second.or_else(|| {
            let number = |name| root.number::<i64>(&format!("{folder}/{name}"));
            let quota = missing.keep_if_present("cpu quota", number("cpu.cfs_quota_us"))?;
            let period = missing.keep_if_present("cpu quota", number("cpu.cfs_period_us"))?;
            text::quota_millicores(quota, period).flatten()
        })
    });
    quotas.min()
}

/// The tightest memory limit of the cgroup and its ancestors.
fn memory_limit(root: &HostRoot, cgroups: &[Cgroup], missing: &mut Missing) -> Option<u64> {
    let limits = folders(cgroups, "memory").into_iter().flat_map(|folder| {
        ["memory.max", "memory.limit_in_bytes"].map(|name| {
            let limit = root.parse(&format!("{folder}/{name}"), text::memory_limit);
            missing.keep_if_present("memory limit", limit).flatten()
        })
    });
    limits.flatten().min()
}

/// Whether the network namespace is not the host's. Process 1 is the host's own only in the initial process
/// namespace.
fn own_network_namespace(root: &HostRoot) -> Option<bool> {
    let own = root.link_target("proc/self/ns/net").ok()?;
    if own == FIRST_NETWORK_NAMESPACE {
        return Some(false);
    }
    if root.link_target("proc/self/ns/pid").ok()? != FIRST_PROCESS_NAMESPACE {
        return None;
    }
    Some(own != root.link_target("proc/1/ns/net").ok()?)
}

/// The container type, by the first indication found.
fn container(root: &HostRoot, cgroups: &[Cgroup]) -> Option<String> {
    let by_path = ENGINE_PATHS.iter().find(|(part, _)| {
        cgroups.iter().any(|group| group.path.split(['/', '-', '_']).any(|name| name == *part))
    });
    let kind = by_path.or_else(|| ENGINE_FILES.iter().find(|(path, _)| root.exists(path)));
    if let Some((_, kind)) = kind {
        return Some((*kind).to_owned());
    }
    // systemd records the value set by its container manager.
    root.line("run/systemd/container").ok().filter(|kind| !kind.is_empty())
}
