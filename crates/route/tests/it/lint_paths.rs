//! Paths between hosts against the kernel: the linter reports a broken path, from
//! files and from live namespaces, where pings between the namespaces are lost, and
//! only there.

use std::{
    fmt::Write as _,
    fs,
    io::{BufRead as _, BufReader},
    os::fd::AsFd as _,
    path::Path,
    process::{Command, Stdio},
    thread,
};

use clearstream_host::HostRoot;
use clearstream_lint::MuteList;
use clearstream_netconfig::read;
use clearstream_route::lint::{self, Subject};
use clearstream_schema::tune::Severity;
use clearstream_tune::Assumed;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Servers have so many addresses, so that requests take both gateways: that
/// all of a client's go by one is a chance of 1 in 32768.
const ADDRESSES: u32 = 16;

/// `host NAME` makes a network namespace that ends with the script, `at NAME
/// COMMAND` runs there, `join NAME BRIDGE INTERFACE` connects it.
const HOSTS: &str = r#"
HELD=""
trap '[ -z "$HELD" ] || kill $HELD' EXIT
at() { eval "holder=\$PID_$1"; shift; nsenter -t $holder -n "$@"; }
host() {
    unshare -n sleep 55 >/dev/null 2>&1 & pid=$!
    HELD="$HELD $pid"
    while [ "$(readlink /proc/$pid/ns/net)" = "$(readlink /proc/$$/ns/net)" ]; do sleep 0.01; done
    eval "PID_$1=$pid"
    at $1 sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0 \
        net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.default.dad_transmits=0
    at $1 ip link set lo up
}
join() {
    ip link add name $1-$3 type veth peer name $3 netns $(eval echo \$PID_$1)
    ip link set $1-$3 master $2; ip link set $1-$3 up; at $1 ip link set $3 up
}
set -e
ip link set lo up
sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
for name in near far; do ip link add name $name type bridge; ip link set $name up; done
for name in c1 c2 gw1 gw2 s1; do host $name; done
for name in c1 c2 gw1 gw2; do join $name near e0; done
# Two interfaces on one link: each replies for its own addresses alone.
at s1 sysctl -qw net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2
join s1 far e0; join s1 far e1; for name in gw1 gw2; do join $name far e1; done
"#;

const NAMES: [&str; 5] = ["c1", "c2", "s1", "gw1", "gw2"];

/// Routes and sysctls of a host of the site that works.
fn files(name: &str) -> (String, String) {
    let mut batch = String::new();
    let mut sysctls = String::new();
    match name {
        "c1" | "c2" => {
            let last = if name == "c1" { 11 } else { 12 };
            let _ = write!(
                batch,
                "address add 10.1.0.{last}/24 dev e0\naddress add fd01::{last}/64 dev e0\n\
                 route add 10.2.0.0/24 nexthop via 10.1.0.1 dev e0 nexthop via 10.1.0.2 dev e0\n\
                 route add 10.3.0.0/24 nexthop via 10.1.0.1 dev e0 nexthop via 10.1.0.2 dev e0\n\
                 route add fd02::/64 nexthop via fd01::1 dev e0 nexthop via fd01::2 dev e0\n"
            );
        }
        "s1" => {
            for at in 201..201 + ADDRESSES {
                let _ =
                    write!(batch, "address add 10.2.0.{at}/24 dev e0\naddress add fd02::{at}/64 dev e0\n");
            }
            batch += "address add 10.3.0.201/24 dev e1\n\
                      route add 10.1.0.0/24 nexthop via 10.2.0.1 dev e0 nexthop via 10.2.0.2 dev e0\n\
                      route add fd01::/64 nexthop via fd02::1 dev e0 nexthop via fd02::2 dev e0\n";
        }
        _ => {
            let last = if name == "gw1" { 1 } else { 2 };
            let _ = writeln!(batch, "address add 10.3.0.{last}/24 dev e1");
            for (interface, network) in [("e0", 1), ("e1", 2)] {
                let _ = write!(
                    batch,
                    "address add 10.{network}.0.{last}/24 dev {interface}\n\
                     address add fd0{network}::{last}/64 dev {interface}\n"
                );
            }
            sysctls += "net.ipv4.ip_forward = 1\nnet.ipv6.conf.all.forwarding = 1\n";
        }
    }
    (batch, sysctls)
}

/// A change of one host's files.
struct Change {
    host: &'static str,
    /// What is replaced in the batch; nothing for lines at its end.
    from: &'static str,
    to: &'static str,
    sysctl: &'static str,
    /// The finding that is wanted, none where all works.
    id: &'static str,
}

const fn change(host: &'static str, from: &'static str, to: &'static str, id: &'static str) -> Change {
    Change { host, from, to, sysctl: "", id }
}

const fn setting(host: &'static str, sysctl: &'static str, id: &'static str) -> Change {
    Change { host, from: "", to: "", sysctl, id }
}

/// Rules of nftables of a host.
const RULES: &str = "rules.nft";
const NO_ROUTE: &str = "route:routing:no-route";
const BACK: &str = "route add 10.1.0.0/24 nexthop via 10.2.0.1 dev e0 nexthop via 10.2.0.2 dev e0";
const TO_SERVERS: &str = "route add 10.2.0.0/24 nexthop via 10.1.0.1 dev e0 nexthop via 10.1.0.2 dev e0";
const NO_FORWARDING: &str = ":routing:gateway-does-not-forward";

const CHANGES: [Change; 19] = [
    setting("c1", "", ""),
    // Replies from the address of e1 leave by e0.
    setting("s1", "net.ipv4.conf.all.rp_filter = 1\n", "rp_filter:routing:will-drop"),
    setting("s1", "net.ipv4.conf.all.rp_filter = 1\nnet.ipv4.conf.e1.rp_filter = 2\n", ""),
    setting("c1", "net.ipv4.conf.all.rp_filter = 1\n", ""),
    // The filter does the lookup of a packet that the host itself sends.
    Change {
        host: "c1",
        from: TO_SERVERS,
        to: "rule add priority 9 iif lo lookup 100\nroute add 10.2.0.0/24 table 100 nexthop via 10.1.0.1 dev e0 nexthop via 10.1.0.2 dev e0",
        sysctl: "net.ipv4.conf.all.rp_filter = 1\n",
        id: "",
    },
    setting("gw1", "net.ipv4.conf.all.rp_filter = 1\n", ""),
    // IPv6 forwards by `all` alone.
    setting("gw1", "net.ipv6.conf.e0.forwarding = 0\n", ""),
    // By the other gateway, on the same link.
    change("gw1", "", "route add 10.2.0.201/32 via 10.1.0.2 dev e0\n", ""),
    change("c1", "10.2.0.0/24", "10.2.0.0/25", "route:routing:leaves-hosts-out"),
    change("s1", BACK, "", NO_ROUTE),
    change("s1", "route add fd01::/64", "route add fd09::/64", NO_ROUTE),
    change("s1", "", "route add blackhole 10.1.0.12/32\n", "route:routing:black-hole"),
    change("s1", "", "rule add priority 9 to 10.1.0.12 prohibit\n", "rule:routing:prohibit"),
    change("gw2", "", "route add unreachable 10.2.0.192/26\n", "route:routing:unreachable"),
    change("c1", "via 10.1.0.1 ", "via 10.1.0.12 ", "gateway:routing:wrong-host"),
    change("c1", "10.2.0.0/24 nexthop", "10.2.0.0/24 src 10.1.0.99 nexthop", "route:range:no-such-source"),
    setting("gw1", "net.ipv4.ip_forward = 0\n", NO_FORWARDING),
    setting("gw1", "net.ipv4.conf.e0.forwarding = 0\n", NO_FORWARDING),
    setting("gw2", "net.ipv6.conf.all.forwarding = 0\n", NO_FORWARDING),
];

/// Files of all hosts with a change, a folder for each.
fn write(folder: &Path, change: &Change) {
    for name in NAMES {
        let (mut batch, mut sysctls) = files(name);
        if name == change.host {
            assert!(batch.contains(change.from), "{}", change.from);
            match change.from {
                "" => batch += change.to,
                from => batch = batch.replacen(from, change.to, 1),
            }
            let key = change.sysctl.split(" = ").next().unwrap();
            match sysctls.lines().position(|line| !key.is_empty() && line.starts_with(&format!("{key} ="))) {
                Some(_) => sysctls = sysctls.replace(&format!("{key} = 1\n"), change.sysctl),
                None => sysctls += change.sysctl,
            }
        }
        fs::create_dir(folder.join(name)).unwrap();
        fs::write(folder.join(name).join("routing.batch"), batch).unwrap();
        fs::write(folder.join(name).join("sysctl.conf"), sysctls).unwrap();
    }
}

/// Commands that apply the files. What the kernel refuses is omitted.
fn applied(folder: &Path) -> String {
    let mut text = String::new();
    for name in NAMES.into_iter().filter(|name| folder.join(name).is_dir()) {
        let file = |file: &str| folder.join(name).join(file);
        let _ = writeln!(
            text,
            "at {name} ip -force -batch {} >/dev/null 2>&1 || true",
            file("routing.batch").display()
        );
        for line in fs::read_to_string(file("sysctl.conf")).unwrap().lines() {
            let _ = writeln!(text, "at {name} sysctl -qw {}", line.replace(" = ", "="));
        }
        if file(RULES).exists() {
            let _ = writeln!(text, "at {name} nft -f {}", file(RULES).display());
        }
    }
    text
}

/// Pings from each client to every address, all at once. Each may be lost a few
/// times on a busy machine; which next hops it takes is the same every time.
fn pings() -> String {
    let mut text = "try() { n=0; until at $1 ping -q -c 1 -W 1 $2 >/dev/null 2>&1; do n=$((n+1)); \
                    [ $n -lt 2 ] || { echo lost $1 $2; return; }; done; }\nPIDS=''\n"
        .to_owned();
    for client in ["c1", "c2"] {
        let _ = writeln!(text, "try {client} 10.3.0.201 & PIDS=\"$PIDS $!\"");
        for at in 201..201 + ADDRESSES {
            let _ = writeln!(text, "try {client} 10.2.0.{at} & PIDS=\"$PIDS $!\"");
            let _ = writeln!(text, "try {client} fd02::{at} & PIDS=\"$PIDS $!\"");
        }
    }
    text + "wait $PIDS\n"
}

/// Applies the files in namespaces: returns the lost pings, and the hosts as they
/// are then.
fn effective(folder: &Path) -> (String, Vec<Subject>) {
    let mut script = format!("{HOSTS}\n{}{}", applied(folder), pings());
    for name in NAMES.into_iter().filter(|name| folder.join(name).is_dir()) {
        let _ = writeln!(script, "echo namespace {name} $PID_{name}");
    }
    script += "echo ready\nread end || true\n";
    let mut command = Command::new("timeout");
    command.args(["50", "unshare", "-n", "sh", "-c", &script]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lost = String::new();
    let mut hosts = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["namespace", name, pid] => hosts.push(live(name, pid)),
            ["ready"] => break,
            _ => lost.push_str(&format!("{line}\n")),
        }
    }
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success(), "{lost}");
    (lost, hosts)
}

/// A namespace as a running host, read by a thread that enters it.
fn live(name: &str, pid: &str) -> Subject {
    let namespace = fs::File::open(format!("/proc/{pid}/ns/net")).unwrap();
    let read = move || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        lint::of_host(&HostRoot::live(), "")
    };
    let subject = thread::scope(|scope| scope.spawn(read).join().unwrap());
    Subject { name: name.to_owned(), ..subject }
}

/// `host id` of severe findings about paths.
fn found(hosts: &[Subject]) -> Vec<String> {
    let report = lint::lint(hosts, None, &MuteList::default());
    let is_of_paths = |id: &str| {
        let starts = ["route:", "rule:", "gateway:", "address:", "rp_filter:"];
        starts.iter().any(|start| id.starts_with(start)) || id.ends_with(NO_FORWARDING)
    };
    let grave = report.findings.iter().filter(|it| it.severity > Severity::Note && is_of_paths(&it.id));
    grave.map(|it| format!("{} {}", it.host.as_deref().unwrap_or_default(), it.id)).collect()
}

fn of_files(folder: &Path) -> Vec<Subject> {
    lint::of_files(read::folder(folder).unwrap(), "site", &Assumed::default())
}

fn check(change: &Change) {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), change);
    let of_files = found(&of_files(folder.path()));
    let (lost, hosts) = effective(folder.path());
    let live = found(&hosts);
    let what = format!(
        "{} {:?} {:?}: lost:\n{lost}files: {of_files:?}\nlive: {live:?}",
        change.host, change.to, change.sysctl
    );
    assert_eq!(lost.is_empty(), change.id.is_empty(), "the kernel: {what}");
    assert_eq!(of_files.is_empty(), change.id.is_empty(), "files: {what}");
    assert_eq!(live.is_empty(), change.id.is_empty(), "live: {what}");
    let is_its = |it: &&String| it.starts_with(&format!("{} ", change.host));
    assert!(
        of_files.iter().filter(is_its).any(|it| it.ends_with(change.id)) || change.id.is_empty(),
        "{what}"
    );
    assert!(live.iter().any(|it| is_its(&it)) || change.id.is_empty(), "{what}");
}

#[test]
fn root_paths_are_broken_where_the_kernel_loses_pings() {
    thread::scope(|scope| {
        let checks: Vec<_> = CHANGES
            .chunks(CHANGES.len().div_ceil(4))
            .map(|changes| scope.spawn(move || changes.iter().for_each(check)))
            .collect();
        for check in checks {
            check.join().unwrap();
        }
    });
}

/// The smallest site in which no pair can communicate: every line is right by
/// itself.
#[test]
fn root_nobody_can_communicate_from_files_and_live() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &setting("c1", "", ""));
    fs::remove_dir_all(folder.path().join("c2")).unwrap();
    let batch = |host: &str, text: &str| {
        fs::write(folder.path().join(host).join("routing.batch"), text).unwrap();
    };
    let hops = "nexthop via 10.1.0.1 dev e0 nexthop via 10.1.0.2 dev e0";
    batch("c1", &format!("address add 10.1.0.11/24 dev e0\nroute add 10.2.0.0/25 {hops}\n"));
    batch("s1", "address add 10.2.0.201/24 dev e0\n");
    let wanted = ["c1 route:routing:leaves-hosts-out", "s1 route:routing:no-route"];
    assert_eq!(found(&of_files(folder.path())), wanted);
    let (lost, hosts) = effective(folder.path());
    assert!(lost.contains("lost c1 10.2.0.201\n"), "{lost}");
    assert_eq!(found(&hosts), wanted);
}

/// Gateways that masquerade: the server needs no route back. Live, where their
/// rules are read from the kernel, and from files.
#[test]
fn root_behind_masquerade_no_route_back_is_needed() {
    // Rules for other packets change nothing.
    for (rule, works) in [
        ("oifname \"e1\" masquerade", true),
        ("ip saddr 10.1.0.0/24 counter masquerade", true),
        ("ip saddr 172.17.0.0/16 oifname != \"docker0\" masquerade", false),
        ("oifname \"e0\" masquerade", false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &change("s1", BACK, "", ""));
        for gateway in ["gw1", "gw2"] {
            let table = format!(
                "table ip nat {{\n chain post {{\n type nat hook postrouting priority 100;\n {rule}\n }}\n}}\n"
            );
            fs::write(folder.path().join(gateway).join(RULES), table).unwrap();
        }
        let of_files = found(&of_files(folder.path()));
        let (lost, hosts) = effective(folder.path());
        let live = found(&hosts);
        assert_eq!(lost.is_empty(), works, "{rule}: the kernel: {lost}");
        let wanted: &[&str] = if works { &[] } else { &["s1 route:routing:no-route"] };
        assert_eq!(of_files, wanted, "{rule}: files");
        assert_eq!(live, wanted, "{rule}: live");
    }
}

/// A client with the servers as neighbours works where a gateway replies to ARP for
/// them.
#[test]
fn root_neighbours_by_a_proxy_of_arp() {
    for (sysctl, works) in [("net.ipv4.conf.e0.proxy_arp = 1\n", true), ("", false)] {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &setting("gw1", sysctl, ""));
        let (batch, _) = files("c1");
        let batch = batch.replace(TO_SERVERS, "route add 10.2.0.0/24 dev e0");
        fs::write(folder.path().join("c1").join("routing.batch"), batch).unwrap();
        let of_files = found(&of_files(folder.path()));
        let (lost, hosts) = effective(folder.path());
        let live = found(&hosts);
        assert_eq!(lost.is_empty(), works, "the kernel: {lost}");
        for found in [of_files, live] {
            let is_its = found.contains(&"c1 route:routing:not-on-the-link".to_owned());
            assert!(found.is_empty() == works && is_its != works, "{found:?}");
        }
    }
}
