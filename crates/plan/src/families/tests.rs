use std::fs;

use super::*;
use crate::Target as _;

fn of_sysctl(key: &str) -> Setting {
    Setting::Sysctl(key.to_owned())
}

fn of_file(path: &str) -> Setting {
    Setting::File(path.to_owned())
}

fn same_texts(setting: &Setting, wanted: &str, live: &str) -> bool {
    same(setting, &Value::of(setting, wanted), &Value::of(setting, live))
}

fn permits_sysctl(key: &str) -> bool {
    check_permitted(&of_sysctl(key)).is_ok()
}

fn permits_file(path: &str) -> bool {
    check_permitted(&of_file(path)).is_ok()
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
        assert!(permits_sysctl(key), "{key}");
    }
    for path in [
        "proc/irq/42/smp_affinity_list",
        "proc/irq/default_smp_affinity",
        "sys/class/net/eth0/queues/rx-0/rps_cpus",
        "sys/class/net/eth0.100/queues/tx-11/xps_cpus",
        "sys/class/net/eth0/queues/tx-1/byte_queue_limits/limit_max",
        "sys/class/net/ib0/mode",
    ] {
        assert!(permits_file(path), "{path}");
    }
    let table = |name: &str| check_permitted(&Setting::NetfilterTable { name: name.to_owned() }).is_ok();
    assert!(table("clearstream_route"));
    for bad in ["filter", "clearstream; flush ruleset", "clearstream a", "", "clearstream\n", "Clearstream"] {
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
        assert!(!permits_sysctl(key), "{key:?}");
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
        assert!(!permits_file(path), "{path:?}");
    }
}

/// A host with these modules loaded, and sch_fq_codel built in.
fn host(modules: &str) -> (tempfile::TempDir, Host) {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in [
        ("proc/modules", modules),
        ("proc/sys/kernel/osrelease", "6.1.0-56-amd64"),
        ("lib/modules/6.1.0-56-amd64/modules.builtin", "kernel/net/sched/sch_fq_codel.ko"),
        ("proc/sys/net/ipv4/tcp_available_congestion_control", "reno cubic"),
    ] {
        let file = folder.path().join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, format!("{text}\n")).unwrap();
    }
    let host = Host::directory(folder.path());
    (folder, host)
}

fn refused(host: &Host, setting: &Setting, value: &str) -> Option<String> {
    host.check_loaded(setting, &Value::of(setting, value)).err().map(|error| error.to_string())
}

#[test]
fn what_would_load_a_module_is_refused() {
    let (_folder, loaded) = host("nf_tables 300000 1 nft_ct, Live 0x0\nnft_ct 24576 0 - Live 0x0");
    let qdisc = || Setting::Qdisc { interface: "eth0".to_owned() };
    let table = || Setting::NetfilterTable { name: "clearstream_a".to_owned() };
    let chain =
        |rule: &str| format!("chain in {{ type filter hook input priority 0; policy accept; {rule}; }};");
    for (setting, value, module) in [
        (of_sysctl("net.ipv4.tcp_congestion_control"), "bbr", "tcp_bbr"),
        (of_sysctl("net/ipv4/tcp_congestion_control"), "../x", "tcp_../x"),
        (of_sysctl("net.core.default_qdisc"), "fq", "sch_fq"),
        (of_sysctl("net.core.default_qdisc"), "netem", "sch_netem"),
        (qdisc(), "tbf rate 1mbit burst 10kb limit 100kb", "sch_tbf"),
    ] {
        let error = refused(&loaded, &setting, value).unwrap_or_else(|| panic!("{setting} {value}"));
        assert!(error.contains(&format!("would load the kernel module {module}")), "{error}");
    }
    for rule in [
        "masquerade",
        "dnat to 10.0.0.1",
        "tcp dport 22 redirect to :2222",
        "log",
        "limit rate 1/second",
        "queue num 0",
        "fib saddr oif 0 drop",
        "ip saddr @a drop",
        "meta nftrace set 1",
        "ip daddr set 192.0.2.1",
        "tcp dport 22 tcp dport set 23",
    ] {
        let error = refused(&loaded, &table(), &chain(rule)).unwrap_or_else(|| panic!("{rule}"));
        assert!(error.contains("only matches, marks, accepts and drops"), "{error}");
    }
    assert!(refused(&loaded, &table(), "chain n { type nat hook prerouting priority 0; };").is_some());
    for (setting, value) in [
        (of_sysctl("net.ipv4.tcp_congestion_control"), "cubic"),
        (of_sysctl("net.core.default_qdisc"), "fq_codel"),
        (of_sysctl("net.core.default_qdisc"), "pfifo_fast"),
        (of_sysctl("net.ipv4.tcp_sack"), "0"),
        (qdisc(), "pfifo limit 10p"),
        (qdisc(), "default noqueue"),
        (
            table(),
            &chain(
                "iifname \"log\" ct state new ether saddr 02:00:00:00:00:01 ct mark set 7001 comment \"gw1 nat\"",
            ),
        ),
        (table(), &chain("ct direction reply meta mark set ct mark")),
        (table(), &chain("ip saddr 10.0.0.0/8 ip6 daddr fd01::/64 drop")),
    ] {
        assert_eq!(refused(&loaded, &setting, value), None, "{setting} {value}");
    }
    let (_folder, bare) = host("");
    let error = refused(&bare, &table(), &chain("drop")).unwrap();
    assert!(error.contains("nf_tables"), "{error}");
}

fn file(path: &str, wanted: &str, live: &str) -> bool {
    same_texts(&of_file(path), wanted, live)
}

fn sysctl(key: &str, wanted: &str, live: &str) -> bool {
    same_texts(&of_sysctl(key), wanted, live)
}

#[test]
fn vectors_and_numbers_by_value() {
    assert!(sysctl("net.ipv4.tcp_wmem", "4096 65536  4194304", "4096\t65536\t4194304"));
    assert!(!sysctl("net.ipv4.tcp_wmem", "4096 65536", "4096\t65536\t4194304"));
    assert!(sysctl("net.core.rmem_max", "0212992", "212992"));
    assert!(!sysctl("net.ipv4.tcp_congestion_control", "bbr", "cubic"));
    assert!(sysctl("net.ipv4.ip_local_reserved_ports", "8080,8081,8082", "8080-8082"));
    assert!(sysctl("net.ipv4.tcp_allowed_congestion_control", "cubic reno", "reno cubic"));
}

/// Documentation/core-api/cpu_hotplug and `man 7 cpuset`, formats for masks and lists.
#[test]
fn masks_and_lists_as_sets() {
    assert!(file("sys/class/net/eth0/queues/rx-0/rps_cpus", "f", "00000000,0000000f"));
    assert!(file("sys/class/net/eth0/queues/rx-0/rps_cpus", "0", "00"));
    assert!(file("proc/irq/9/smp_affinity", "1,00000000", "00000001,00000000"));
    assert!(!file("proc/irq/9/smp_affinity", "1,00000000", "00000000,00000001"));
    assert!(file("proc/irq/9/smp_affinity_list", "0,1,2,3,8", "0-3,8"));
    assert!(!file("proc/irq/9/smp_affinity_list", "0-3", "0-4"));
}

#[test]
fn tables_by_their_entries() {
    let setting = Setting::Ethtool {
        interface: "eth0".to_owned(),
        group: "rss".to_owned(),
        name: "indirection".to_owned(),
    };
    assert!(same_texts(&setting, "0,1,0,1", "equal 2") && same_texts(&setting, "0*2,1*2", "0,0,1,1"));
    assert!(!same_texts(&setting, "equal 2", "equal 4") && !same_texts(&setting, "0*2,1*2", "equal 2"));
}
