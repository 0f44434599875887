//! A paired controller that wants more than it may, against a daemon that runs as
//! root in a private world. What counts is what the files and tools show afterwards.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::Path,
    process::Child,
    sync::atomic::AtomicBool,
    time::Duration,
};

use clearstream::agent;
use clearstream_control::{Call, Peer, PeerError, Shutdown, pairing::Pairing, tls};
use clearstream_flow::{Open, calls::Listen};
use clearstream_live::{CollectorOptions, ReadLive};
use clearstream_plan::calls::{Applied, Apply, ApplyPending, Keep, Read, Revert, Values};
use clearstream_schema::{
    control::{Cookie, Failure, FailureKind},
    flow::FlowConfig,
    plan::{LinkAttribute, Setting},
    scope::Right,
};

use super::{
    requests::{PROGRAM, plan, samples},
    world,
};
use crate::common::{clearstream, eventually, run, signal};

/// A daemon of this world.
struct Daemon {
    process: Child,
    folder: String,
    address: SocketAddr,
}

impl Daemon {
    fn start(scratch: &Path) -> Self {
        let folder = scratch.join("identity").display().to_string();
        let mut process = clearstream(&["serve", "--listen", "127.0.0.1:0", "--identity", &folder])
            .env("CLEARSTREAM_PLANS", scratch.join("plans"))
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split([' ', ';']).nth(2).unwrap().parse().unwrap();
        Self { process, folder, address }
    }

    /// A controller that was given this scope.
    fn pair(&self, name: &str, scope: Option<&str>) -> Pairing {
        let address = self.address.to_string();
        let mut arguments = vec!["pair", "create", name, "--address", &address, "--identity", &self.folder];
        arguments.extend(scope.into_iter().flat_map(|scope| ["--scope", scope]));
        Pairing::from_token(run(&arguments).ok().trim()).unwrap()
    }

    fn connect(&self, pairing: &Pairing) -> Peer {
        // The session before this one may still be ending.
        let mut found = None;
        eventually(Duration::from_secs(20), "a session", || {
            found = tls::connect(self.address, pairing).ok();
            found.is_some()
        });
        found.unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        signal(self.process.id(), "TERM");
        let _ = self.process.wait();
    }
}

fn refused<R>(result: Result<R, PeerError>) -> Option<Failure> {
    match result {
        Ok(_) => None,
        Err(PeerError::Refused { failure, .. }) => Some(failure),
        Err(error) => panic!("the session is over: {error}"),
    }
}

/// Settings that no controller may change, in every spelling that might lead there.
pub(crate) fn outside() -> Vec<(Setting, String)> {
    let mut found = Vec::new();
    let keys = [
        ("kernel", "core_pattern"),
        ("kernel", "modprobe"),
        ("kernel", "hotplug"),
        ("kernel", "poweroff_cmd"),
        ("kernel", "hostname"),
        ("kernel", "sysrq"),
        ("kernel", "randomize_va_space"),
        ("kernel", "kptr_restrict"),
        ("kernel", "unprivileged_bpf_disabled"),
        ("kernel", "yama/ptrace_scope"),
        ("fs", "suid_dumpable"),
        ("fs", "protected_symlinks"),
        ("fs", "binfmt_misc/register"),
        ("vm", "overcommit_memory"),
        ("vm", "mmap_min_addr"),
        ("vm", "drop_caches"),
        ("user", "max_user_namespaces"),
        ("dev", "cdrom/lock"),
    ];
    for (folder, name) in keys {
        let dotted = format!("{folder}.{}", name.replace('/', "."));
        let slashed = format!("{folder}/{name}");
        for key in [
            dotted.clone(),
            slashed.clone(),
            format!("net/../{slashed}"),
            format!("net/ipv4/../../{slashed}"),
            format!("net.ipv4.//.//.{dotted}"),
            format!("net.core/..{dotted}"),
            format!("/{slashed}"),
            format!("{dotted}\0"),
        ] {
            found.push((Setting::Sysctl(key), PROGRAM.to_owned()));
        }
    }
    for (key, value) in [
        ("net.core.bpf_jit_harden", "0"),
        ("net.core.bpf_jit_enable", "2"),
        ("net.core.netdev_rss_key", "00"),
        ("net.ipv4.tcp_fastopen_key", "00000000-00000000-00000000-00000000"),
        ("net.ipv4.ip_unprivileged_port_start", "0"),
        ("net.ipv4.ping_group_range", "0 2147483647"),
        ("net.ipv6.conf.all.stable_secret", "::1"),
        ("net.netfilter.nf_log.2", "nfnetlink_log"),
        ("net.netfilter.nf_log_all_netns", "1"),
    ] {
        found.push((Setting::Sysctl(key.to_owned()), value.to_owned()));
    }
    for path in [
        "sys/kernel/uevent_helper",
        "sys/kernel/mm/ksm/run",
        "sys/kernel/debug/x",
        "sys/module/tcp_cubic/parameters/beta",
        "sys/module/x/parameters/path",
        "sys/power/state",
        "sys/bus/pci/rescan",
        "sys/devices/system/cpu/cpu1/online",
        "sys/fs/x",
        "sys/block/sda/queue/scheduler",
        "sys/class/net/v0/ifalias",
        "sys/class/net/v0/flags",
        "sys/class/net/v0/proto_down",
        "sys/class/net/v0/../../../kernel/uevent_helper",
        "sys/class/net/v0/queues/rx-0/../../../../../../kernel/uevent_helper",
        "sys/class/net/../../kernel/uevent_helper",
        "sys/class/net/v0/queues//rx-0/rps_cpus",
        "/sys/class/net/v0/mtu",
        "proc/irq/9/spurious",
        "proc/irq/9/../../sys/kernel/core_pattern",
        "proc/irq/../sys/kernel/modprobe",
        "proc/sys/kernel/core_pattern",
        "proc/sys/net/ipv4/ip_forward",
        "proc/sysrq-trigger",
        "etc/passwd",
        "../etc/passwd",
    ] {
        found.push((Setting::File(path.to_owned()), "1".to_owned()));
    }
    for (name, text) in [
        ("foreign", "chain keep { }"),
        ("clearstream; flush ruleset", ""),
        ("clearstream { }; delete table inet foreign; add table inet b", ""),
        ("clearstream_a", "} flush ruleset; table inet b {"),
        ("clearstream_a", "comment \"{\"; } delete table inet foreign; table inet b { comment \"}\";"),
        ("clearstream_a", "include \"/etc/shadow\";"),
        ("clearstream_a", "# {\n} flush ruleset; table inet b {"),
    ] {
        found.push((Setting::NetfilterTable { name: name.to_owned() }, text.to_owned()));
    }
    // A second line in a value of a setting that is one of the families.
    for value in ["1\n2", "1\0", "1\n\n|/tmp/x"] {
        found.push((Setting::Sysctl("net.ipv4.tcp_sack".to_owned()), value.to_owned()));
        found.push((Setting::File("sys/class/net/v0/queues/rx-0/rps_cpus".to_owned()), value.to_owned()));
    }
    found
}

/// Values of the families that would have the kernel load what they name, or
/// redirect packets: over TLS refused before anything is written.
fn loading() -> Vec<(Setting, String)> {
    let sysctl = |key: &str| Setting::Sysctl(key.to_owned());
    let table = || Setting::NetfilterTable { name: "clearstream_test".to_owned() };
    let chain = |kind: &str, hook: &str, rule: &str| {
        format!("chain in {{ type {kind} hook {hook} priority 0; policy accept; {rule}; }};")
    };
    vec![
        (sysctl("net.ipv4.tcp_congestion_control"), "nonesuch".to_owned()),
        (sysctl("net/ipv4/tcp_congestion_control"), "../nonesuch".to_owned()),
        (table(), chain("nat", "prerouting", "dnat ip to 192.0.2.1")),
        (table(), chain("nat", "output", "tcp dport 22 redirect to :2222")),
        (table(), chain("nat", "postrouting", "masquerade")),
        (table(), chain("filter", "forward", "queue num 0")),
        (table(), chain("filter", "prerouting", "ip daddr set 192.0.2.1")),
        (table(), chain("filter", "input", "log prefix \"x\"")),
        (table(), chain("filter", "prerouting", "tproxy ip to 127.0.0.1:1")),
    ]
}

/// Settings of the families: for `measure` as closed as the others.
fn families() -> Vec<(Setting, String)> {
    let sysctl = |key: &str, value: &str| (Setting::Sysctl(key.to_owned()), value.to_owned());
    let file = |path: &str, value: &str| (Setting::File(path.to_owned()), value.to_owned());
    let v0 = || "v0".to_owned();
    vec![
        sysctl("net.ipv4.tcp_sack", "0"),
        sysctl("net/ipv4/tcp_timestamps", "0"),
        sysctl("net.ipv4.conf.v0.rp_filter", "2"),
        sysctl("net.ipv4.ip_forward", "1"),
        file("sys/class/net/v0/queues/rx-0/rps_cpus", "1"),
        file("proc/irq/9/smp_affinity_list", "1"),
        (Setting::Link { interface: v0(), attribute: LinkAttribute::Mtu }, "1400".to_owned()),
        (Setting::Qdisc { interface: v0() }, "pfifo limit 10p".to_owned()),
        (
            Setting::Route { table: 254, destination: "192.0.2.0/24".parse().unwrap(), metric: 0 },
            "blackhole proto 117".to_owned(),
        ),
        (
            Setting::NetfilterTable { name: "clearstream_test".to_owned() },
            "chain leave { type route hook output priority mangle; }".to_owned(),
        ),
    ]
}

fn apply(peer: &mut Peer, (setting, value): &(Setting, String), pending: bool) -> Option<Failure> {
    let plan = plan(setting.clone(), Some(value));
    if pending { refused(peer.call(&ApplyPending { plan })) } else { refused(peer.call(&Apply { plan })) }
}

#[test]
fn root_a_hostile_controller_changes_nothing_that_it_may_not() {
    world::inside(module_path!(), "root_a_hostile_controller_changes_nothing_that_it_may_not", || {
        let scratch = tempfile::tempdir().unwrap();
        world::make(scratch.path());
        let daemon = Daemon::start(scratch.path());
        let before = world::snapshot();
        assert!(before.len() > 300, "{} places are watched", before.len());
        measuring(&daemon);
        assert_eq!(
            world::differences(&before, &world::snapshot()),
            [] as [&str; 0],
            "with the scope measure"
        );
        let pairing = daemon.pair("eve", Some("measure,change"));
        changing(&mut daemon.connect(&pairing), scratch.path());
        assert_eq!(
            world::differences(&before, &world::snapshot()),
            [] as [&str; 0],
            "outside of the families"
        );
        permitted(&daemon, &pairing, &before);
    });
}

/// Every call that is served with bodies that are none of it, and calls that are not.
fn garbled(peer: &mut Peer) {
    let never = AtomicBool::new(false);
    let mut send = |name: &str, json: &str| {
        refused(peer.call_by_name(
            name,
            serde_json::from_str(json).unwrap(),
            clearstream_control::READ_WITHIN,
            &never,
        ))
    };
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for (name, right) in agent::services().calls().filter(|(name, _)| *name != Shutdown::NAME) {
        for json in ["null", "7", r#""x""#, "[[[]]]", &deep] {
            let failure = send(name, json).unwrap_or_else(|| panic!("{name} was done"));
            let expected = match right {
                Right::Change => FailureKind::Forbidden,
                Right::Measure => FailureKind::Invalid,
            };
            assert_eq!(failure.kind, expected, "{name}: {failure}");
        }
    }
    for name in ["", "exec", "plan", "plan  apply", "Plan Apply", "plan apply\0", &"x".repeat(100_000)] {
        let failure = send(name, "{}").unwrap_or_else(|| panic!("{name} was done"));
        assert_eq!(failure.kind, FailureKind::Unsupported, "{failure}");
    }
}

/// Every call, and 200 settings, with the scope `measure`.
fn measuring(daemon: &Daemon) {
    let pairing = daemon.pair("mallory", None);
    let mut peer = daemon.connect(&pairing);
    garbled(&mut peer);
    for sample in samples() {
        let name = sample.name;
        let failure = refused(sample.send(&mut peer));
        if sample.needs == Right::Change {
            let failure = failure.unwrap_or_else(|| panic!("{name} was done"));
            assert_eq!(failure.kind, FailureKind::Forbidden, "{name}: {failure}");
            assert!(failure.message.contains("pair create mallory --scope measure,change"), "{failure}");
        } else if ["explain-sockets", "observe-sockets"].contains(&name) {
            let failure = failure.expect("peers and programs of other users are not shown");
            assert_eq!(failure.kind, FailureKind::Forbidden, "{failure}");
        } else if let Some(failure) = failure {
            assert_ne!(failure.kind, FailureKind::Internal, "{name}: {failure}");
        }
    }
    drop(peer);
    let mut peer = daemon.connect(&pairing);
    // Its own connection is open, and is not shown.
    let options = CollectorOptions { interval_ns: 50_000_000, connection_count: 5 };
    let sample = peer.call(&ReadLive { host: "here".to_owned(), options }).unwrap();
    assert!(sample.connections.is_empty() && sample.connection_count == 0, "{sample:?}");
    // As root a name would make the kernel load a module.
    let config = FlowConfig { congestion_control: Some("nonesuch".to_owned()), ..FlowConfig::default() };
    let listen =
        Listen { test: 1, cookie: Cookie("00".repeat(16)), address: None, config, open: Open::default() };
    let failure = refused(peer.call(&listen)).unwrap();
    assert!(failure.message.contains("over TLS none is loaded"), "{failure}");
    let all: Vec<(Setting, String)> = outside().into_iter().chain(loading()).chain(families()).collect();
    assert!(all.len() >= 200, "{} settings", all.len());
    for (index, setting) in all.iter().enumerate() {
        let failure = apply(&mut peer, setting, index % 2 == 0).expect("nothing is applied");
        assert_eq!(failure.kind, FailureKind::Forbidden, "{setting:?}");
    }
    // Reading is measuring, but neither a secret nor a method to run something.
    for (setting, _) in outside().into_iter().step_by(3) {
        match peer.call(&Read { settings: vec![setting.clone()] }) {
            Ok(Values { values }) => {
                let is_family = matches!(&setting, Setting::Sysctl(key) if key == "net.ipv4.tcp_sack")
                    || matches!(&setting, Setting::File(path) if path.ends_with("rx-0/rps_cpus"))
                    || matches!(&setting, Setting::NetfilterTable { name } if name == "clearstream_a");
                assert!(values.is_empty() || is_family, "{setting:?}: {values:?}");
            }
            result => assert!(refused(result).is_some()),
        }
    }
}

/// The same settings with `measure,change`: none outside of the families.
fn changing(peer: &mut Peer, scratch: &Path) {
    for (index, setting) in outside().iter().enumerate() {
        // Some of both: a pending one starts a guardian.
        let failure =
            apply(peer, setting, index % 20 == 0).unwrap_or_else(|| panic!("{setting:?} was applied"));
        assert!(
            matches!(failure.kind, FailureKind::Forbidden | FailureKind::Invalid),
            "{setting:?}: {failure}"
        );
    }
    for (index, setting) in loading().iter().enumerate() {
        let failure =
            apply(peer, setting, index % 2 == 0).unwrap_or_else(|| panic!("{setting:?} was applied"));
        assert_eq!(failure.kind, FailureKind::Forbidden, "{setting:?}: {failure}");
        assert!(failure.message.contains("over TLS"), "{setting:?}: {failure}");
    }
    // What the operator has allowed himself is his to revert.
    let own = scratch.join("own.json");
    let setting = Setting::Sysctl("kernel.core_pattern".to_owned());
    fs::write(&own, serde_json::to_string(&plan(setting, Some("core.mine"))).unwrap()).unwrap();
    let change = |arguments: &[&str]| {
        let mut command = clearstream(&[&["plan"], arguments].concat());
        command.env("CLEARSTREAM_PLANS", scratch.join("plans"));
        crate::common::finish(command.spawn().unwrap(), Duration::from_secs(30))
    };
    let (own, pattern) = (own.to_str().unwrap(), "/proc/sys/kernel/core_pattern");
    change(&["apply", own, "--yes"]).refused(4, &["kernel.core_pattern", "--allow-any-setting"]);
    let applied = change(&["apply", own, "--yes", "--json", "--allow-any-setting"]).json();
    let journal = applied["journal"].as_str().unwrap().to_owned();
    let revert = |force| Revert { journal: journal.clone(), force };
    for refusal in [
        refused(peer.call(&revert(false))),
        refused(peer.call(&revert(true))),
        refused(peer.call(&Keep { journal: journal.clone() })),
    ] {
        assert!(refusal.is_some());
        assert_eq!(fs::read_to_string(pattern).unwrap(), "core.mine\n");
    }
    change(&["revert", &journal]).ok();
}

/// What the scope is for works, reads back, and goes back; pending with its session.
fn permitted(daemon: &Daemon, pairing: &Pairing, before: &std::collections::BTreeMap<String, String>) {
    let mut peer = daemon.connect(pairing);
    let mut journals = Vec::new();
    for (setting, value) in families() {
        match peer.call(&Apply { plan: plan(setting.clone(), Some(&value)) }) {
            Ok(Applied { journal: Some(journal), .. }) => journals.push(journal),
            other => panic!("{setting:?}: {other:?}"),
        }
    }
    let changed: BTreeSet<String> = world::differences(before, &world::snapshot()).into_iter().collect();
    let expected = ["/proc/sys/net/ipv4/tcp_sack", "/proc/irq/9/smp_affinity_list", "nft list ruleset"];
    assert!(expected.iter().all(|name| changed.contains(*name)), "{changed:?}");
    let is_ours = |name: &&String| {
        ["/proc/sys/net/ipv", "/proc/irq/9/smp_affinity_list", "/sys/class/net/v0/", "ip ", "nft ", "tc "]
            .iter()
            .any(|part| name.starts_with(part))
    };
    assert_eq!(changed.iter().filter(|name| !is_ours(name)).collect::<Vec<_>>(), [] as [&String; 0]);
    for journal in journals.into_iter().rev() {
        assert!(refused(peer.call(&Revert { journal, force: false })).is_none());
    }
    let sack = (Setting::Sysctl("net.ipv4.tcp_sack".to_owned()), "0".to_owned());
    assert!(apply(&mut peer, &sack, true).is_none());
    let now = || fs::read_to_string("/proc/sys/net/ipv4/tcp_sack").unwrap();
    assert_eq!(now(), "0\n");
    drop(peer);
    eventually(Duration::from_secs(20), "the pending change is restored", || now() == "1\n");
    assert_eq!(world::differences(before, &world::snapshot()), [] as [&str; 0]);
}

/// What a controller cuts itself off by is not what routes are checked for: a
/// queueing discipline that drops everything ends the session, and goes with it.
#[test]
fn root_a_change_that_cuts_its_session_goes_with_it() {
    world::inside(module_path!(), "root_a_change_that_cuts_its_session_goes_with_it", || {
        let scratch = tempfile::tempdir().unwrap();
        world::make(scratch.path());
        let daemon = Daemon::start(scratch.path());
        let pairing = daemon.pair("eve", Some("measure,change"));
        let before = world::tool("tc qdisc show dev lo");
        let mut peer = daemon.connect(&pairing);
        let setting = Setting::Qdisc { interface: "lo".to_owned() };
        let cut = Apply { plan: plan(setting, Some("pfifo limit 0p")) };
        assert!(peer.call(&cut).is_err(), "nothing passes");
        drop(peer);
        let now = || world::tool("tc qdisc show dev lo");
        eventually(Duration::from_secs(30), "what was there is restored", || now() == before);
        // Not cut, it stays: after a further request, and after the session's end in order.
        let sack = || fs::read_to_string("/proc/sys/net/ipv4/tcp_sack").unwrap();
        let apply = |peer: &mut Peer, value: &str| {
            let setting = Setting::Sysctl("net.ipv4.tcp_sack".to_owned());
            peer.call(&Apply { plan: plan(setting, Some(value)) }).unwrap();
        };
        let mut peer = daemon.connect(&pairing);
        apply(&mut peer, "0");
        peer.call(&Read { settings: Vec::new() }).unwrap();
        drop(peer);
        let mut peer = daemon.connect(&pairing);
        assert_eq!(sack(), "0\n");
        apply(&mut peer, "1");
        peer.shutdown();
        drop(daemon.connect(&pairing));
        assert_eq!(sack(), "1\n");
        // The reply was not acknowledged: restored.
        let mut peer = daemon.connect(&pairing);
        apply(&mut peer, "0");
        drop(peer);
        eventually(Duration::from_secs(30), "what was there is restored", || sack() == "1\n");
    });
}
