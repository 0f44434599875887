//! Kernel properties that affect a path.

use std::collections::BTreeMap;

use clearstream_schema::host::Kernel;

use crate::{missing::Missing, parse::text::CpuInfo, root::HostRoot};

/// Sysctls relevant for bulk transfer, by dotted name. Which exist depends on the kernel and the namespace;
/// absent ones are omitted from the report.
const SYSCTLS: &[&str] = &[
    "kernel.numa_balancing",
    "net.core.busy_poll",
    "net.core.busy_read",
    "net.core.default_qdisc",
    "net.core.dev_weight",
    "net.core.gro_normal_batch",
    "net.core.high_order_alloc_disable",
    "net.core.max_skb_frags",
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.netdev_max_backlog",
    "net.core.optmem_max",
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.rps_default_mask",
    "net.core.rps_sock_flow_entries",
    "net.core.skb_defer_max",
    "net.core.somaxconn",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.ipv4.fib_multipath_hash_policy",
    "net.ipv4.ip_forward",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_no_pmtu_disc",
    "net.ipv4.tcp_adv_win_scale",
    "net.ipv4.tcp_autocorking",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_ecn",
    "net.ipv4.tcp_limit_output_bytes",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_min_tso_segs",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.tcp_pacing_ca_ratio",
    "net.ipv4.tcp_pacing_ss_ratio",
    "net.ipv4.tcp_reordering",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_shrink_window",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_tso_win_divisor",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_wmem",
    "net.ipv4.udp_mem",
    "net.ipv4.udp_rmem_min",
    "net.mptcp.enabled",
];

/// 64-bit x86 has pages of 4 KiB in every kernel build.
const X86_PAGE_BYTES: u64 = 4096;

/// Reads the kernel's properties.
pub(crate) fn read(root: &HostRoot, cpu: &CpuInfo, missing: &mut Missing) -> Kernel {
    let mut sysctls = BTreeMap::new();
    for name in SYSCTLS {
        let path = format!("proc/sys/{}", name.replace('.', "/"));
        if let Some(value) = missing.keep_if_present(format!("sysctl {name}"), root.line(&path)) {
            sysctls.insert((*name).to_owned(), value);
        }
    }
    if sysctls.is_empty() {
        missing.note("sysctls", "/proc/sys/net", "none of them exists");
    }
    let available = sysctls.get("net.ipv4.tcp_available_congestion_control");
    let page_bytes = root.page_bytes().or(cpu.x86_64.then_some(X86_PAGE_BYTES)).unwrap_or_else(|| {
        missing.note("page size", "manifest.json", "not recorded, and this architecture has several");
        0
    });
    Kernel {
        release: missing.keep("kernel release", root.line("proc/sys/kernel/osrelease")),
        congestion_controls: available
            .map(|names| names.split_ascii_whitespace().map(str::to_owned).collect())
            .unwrap_or_default(),
        congestion_control: sysctls.get("net.ipv4.tcp_congestion_control").cloned(),
        default_qdisc: sysctls.get("net.core.default_qdisc").cloned(),
        sysctls,
        page_bytes,
    }
}
