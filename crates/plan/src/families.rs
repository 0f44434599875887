//! The families of settings that a plan may name: what ClearStream's own plans
//! change, and nothing that names a program, holds a secret or gives rights.
//!
//! Decided on the path below `/proc/sys`, `/proc/irq` or `/sys` that a name leads
//! to, never on its spelling (sysctl(8) has two separators).

use clearstream_schema::plan::Setting;

use crate::{Fault, SettingError, files};

/// Which settings may be read, written and restored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Permitted {
    /// Plans name settings of the families; a journal of this host is restored
    /// whatever it names. For the operator.
    #[default]
    Families,
    /// Everything is within the families: reading and restoring too. For an agent.
    FamiliesOnly,
    /// The same, and no value makes the kernel load a module. For a controller over
    /// TLS.
    FamiliesLoaded,
    /// Any setting: the operator has permitted it for this plan.
    Any,
}

/// Folders below `/proc/sys` whose sysctls are the network's.
const NETWORK: [&str; 7] = ["core", "ipv4", "ipv6", "mptcp", "netfilter", "bridge", "unix"];

/// Sysctls of the network that are not for plans: secrets, the compiler of BPF
/// programs, names of log back ends, rights of users (ip-sysctl.rst,
/// admin-guide/sysctl/net.rst, nf_conntrack-sysctl.rst).
const REFUSED: [&str; 8] = [
    "bpf_jit_",
    "netdev_rss_key",
    "nf_log",
    "tcp_fastopen_key",
    "stable_secret",
    "ip_unprivileged_port_start",
    "ping_group_range",
    "warnings",
];

/// Sysctls outside of `net` (admin-guide/sysctl/vm.rst, kernel.rst).
const NAMED: [&str; 15] = [
    "kernel/numa_balancing",
    "net/nf_conntrack_max",
    "vm/dirty_background_bytes",
    "vm/dirty_background_ratio",
    "vm/dirty_bytes",
    "vm/dirty_expire_centisecs",
    "vm/dirty_ratio",
    "vm/dirty_writeback_centisecs",
    "vm/min_free_kbytes",
    "vm/nr_hugepages",
    "vm/nr_overcommit_hugepages",
    "vm/swappiness",
    "vm/vfs_cache_pressure",
    "vm/watermark_scale_factor",
    "vm/zone_reclaim_mode",
];

/// Attributes of an interface below `/sys/class/net/NAME`
/// (ABI/testing/sysfs-class-net).
const INTERFACE: [&str; 6] =
    ["gro_flush_timeout", "mode", "mtu", "napi_defer_hard_irqs", "threaded", "tx_queue_len"];

/// Attributes of a queue (ABI/testing/sysfs-class-net-queues).
const RECEIVE_QUEUE: [&str; 2] = ["rps_cpus", "rps_flow_cnt"];
const TRANSMIT_QUEUE: [&str; 3] = ["tx_maxrate", "xps_cpus", "xps_rxqs"];
const BYTE_QUEUE_LIMITS: [&str; 3] = ["hold_time", "limit_max", "limit_min"];

/// Tables of nft that are ours begin with this.
const TABLE_PREFIX: &str = "clearstream";

/// Refuses a setting that belongs to no family, with an error for the operator.
pub(crate) fn check(setting: &Setting) -> Result<(), SettingError> {
    let belongs = match setting {
        Setting::Sysctl(key) => is_sysctl(&files::of_sysctl(setting, key)?),
        Setting::File(path) => is_file(&files::of_path(setting, path)?),
        Setting::NetfilterTable { name } => is_table(name),
        // Netlink settings have names of interfaces and numbers, no paths.
        Setting::Link { .. }
        | Setting::Qdisc { .. }
        | Setting::Ethtool { .. }
        | Setting::Nexthop { .. }
        | Setting::Route { .. }
        | Setting::Rule { .. }
        | Setting::Address { .. } => true,
    };
    if belongs { Ok(()) } else { Err(Fault::OutsideFamilies.of(setting)) }
}

fn is_sysctl(path: &str) -> bool {
    let Some(path) = path.strip_prefix("proc/sys/") else { return false };
    if NAMED.contains(&path) {
        return true;
    }
    let names: Vec<&str> = path.split('/').collect();
    let refused = |name: &&str| REFUSED.iter().any(|refused| name.starts_with(refused));
    matches!(names[..], ["net", folder, _, ..] if NETWORK.contains(&folder)) && !names.iter().any(refused)
}

fn is_file(path: &str) -> bool {
    let numbered = |name: &str, prefix: &str| {
        name.strip_prefix(prefix)
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    match path.split('/').collect::<Vec<_>>()[..] {
        ["proc", "irq", "default_smp_affinity"] => true,
        ["proc", "irq", number, "smp_affinity" | "smp_affinity_list"] => numbered(number, ""),
        ["sys", "class", "net", _, attribute] => INTERFACE.contains(&attribute),
        ["sys", "class", "net", _, "queues", queue, attribute] => {
            numbered(queue, "rx-") && RECEIVE_QUEUE.contains(&attribute)
                || numbered(queue, "tx-") && TRANSMIT_QUEUE.contains(&attribute)
        }
        ["sys", "class", "net", _, "queues", queue, "byte_queue_limits", attribute] => {
            numbered(queue, "tx-") && BYTE_QUEUE_LIMITS.contains(&attribute)
        }
        _ => false,
    }
}

fn is_table(name: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
    name.starts_with(TABLE_PREFIX) && name.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sysctl(key: &str) -> bool {
        check(&Setting::Sysctl(key.to_owned())).is_ok()
    }

    fn file(path: &str) -> bool {
        check(&Setting::File(path.to_owned())).is_ok()
    }

    #[test]
    fn settings_of_our_plans_belong_to_a_family() {
        for key in [
            "net.ipv4.tcp_rmem",
            "net.core.rps_sock_flow_entries",
            "net.ipv4.conf.eth0/100.rp_filter",
            "net/ipv6/conf/eth0.100/forwarding",
            "net.ipv6.conf.all.forwarding",
            "net.ipv4.neigh.default.gc_thresh3",
            "net.netfilter.nf_conntrack_max",
            "kernel.numa_balancing",
            "vm.min_free_kbytes",
        ] {
            assert!(sysctl(key), "{key}");
        }
        for path in [
            "proc/irq/42/smp_affinity_list",
            "proc/irq/default_smp_affinity",
            "sys/class/net/eth0/queues/rx-0/rps_cpus",
            "sys/class/net/eth0.100/queues/tx-11/xps_cpus",
            "sys/class/net/eth0/queues/tx-1/byte_queue_limits/limit_max",
            "sys/class/net/ib0/mode",
        ] {
            assert!(file(path), "{path}");
        }
        let table = |name: &str| check(&Setting::NetfilterTable { name: name.to_owned() }).is_ok();
        assert!(table("clearstream_route"));
        for bad in
            ["filter", "clearstream; flush ruleset", "clearstream a", "", "clearstream\n", "Clearstream"]
        {
            assert!(!table(bad), "{bad:?}");
        }
    }

    /// Names of programs that the kernel runs as root, hardening, secrets, and
    /// attempts to evade a list: both separators, parents, blanks, NUL.
    #[test]
    fn no_spelling_leads_out_of_the_families() {
        for key in [
            "kernel.core_pattern",
            "kernel/core_pattern",
            "kernel.modprobe",
            "kernel.sysrq",
            "kernel.randomize_va_space",
            "vm.overcommit_memory",
            "vm.mmap_min_addr",
            "fs.suid_dumpable",
            "user.max_user_namespaces",
            "net.core.bpf_jit_harden",
            "net.core.bpf_jit_enable",
            "net.ipv4.tcp_fastopen_key",
            "net.ipv6.conf.all.stable_secret",
            "net.ipv4.ip_unprivileged_port_start",
            "net.ipv4.ping_group_range",
            "net.netfilter.nf_log.2",
            "net.core.netdev_rss_key",
            "net/../kernel/core_pattern",
            "net/ipv4/../../kernel/core_pattern",
            "net.ipv4.//.//.kernel.core_pattern",
            "net.ipv4.tcp_rmem/../../../kernel/modprobe",
            "net/ipv4/./tcp_rmem",
            "net//ipv4/tcp_rmem",
            "/net/ipv4/tcp_rmem",
            "./net/ipv4/tcp_rmem",
            "../../proc/sys/kernel/core_pattern",
            "net.ipv4.tcp_rmem\0",
            "net.ipv4.tcp rmem",
            "net.ipv4.tcp_rmem\n",
            "NET.ipv4.tcp_rmem",
            "net",
            "net.core",
            "net.ipv4.",
            "",
        ] {
            assert!(!sysctl(key), "{key:?}");
        }
        for path in [
            "sys/kernel/uevent_helper",
            "sys/power/state",
            "sys/module/tcp_cubic/parameters/beta",
            "sys/class/net/eth0/device/driver/unbind",
            "sys/class/net/eth0/queues/../../../../kernel/uevent_helper",
            "sys/class/net/../../kernel/uevent_helper",
            "sys/class/net/eth0/queues/rx-0/device/reset",
            "sys/class/net/eth0/queues/rx-/rps_cpus",
            "sys/class/net/eth0/queues/rx-0/xps_cpus",
            "sys/class/net/bonding_masters",
            "sys/class/net//eth0/mtu",
            "sys/class/net/eth0/mtu\0",
            "sys/bus/pci/rescan",
            "/sys/class/net/eth0/mtu",
            "proc/irq/42/../../sys/kernel/core_pattern",
            "proc/irq/x/smp_affinity",
            "proc/irq/42/spurious",
            "proc/sys/net/ipv4/ip_forward",
            "proc/sysrq-trigger",
        ] {
            assert!(!file(path), "{path:?}");
        }
    }
}
