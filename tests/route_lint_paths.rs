//! `route lint` of several hosts against the kernel: the simulation of their
//! files says that a path is broken where, and only where, pings between
//! namespaces with the same files are lost.
#![allow(clippy::unwrap_used, reason = "a test may end by panic")]

mod common;

use std::{
    fmt::Write as _,
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use common::{Run, finish, program, run};
use serde_json::Value;

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
    ip link add $1-$2 type veth peer name $3 netns $(eval echo \$PID_$1)
    ip link set $1-$2 master $2; ip link set $1-$2 up; at $1 ip link set $3 up
}
set -e
ip link set lo up
sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
for name in a b; do ip link add $name type bridge; ip link set $name up; done
for name in c1 c2 gw1 gw2 s1; do host $name; done
for name in c1 c2 gw1 gw2; do join $name a e0; done
# Two interfaces on one link: each answers for its own addresses alone.
at s1 sysctl -qw net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2
join s1 b e0; join s1 b e1; for name in gw1 gw2; do join $name b e1; done
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

const NO_ROUTE: &str = "route:routing:no-route";
const BACK: &str = "route add 10.1.0.0/24 nexthop via 10.2.0.1 dev e0 nexthop via 10.2.0.2 dev e0";
const TO_SERVERS: &str = "route add 10.2.0.0/24 nexthop via 10.1.0.1 dev e0 nexthop via 10.1.0.2 dev e0";
const NO_FORWARDING: &str = ":routing:gateway-does-not-forward";

const CHANGES: [Change; 20] = [
    setting("c1", "", ""),
    // Replies from the address of e1 leave by e0.
    setting("s1", "net.ipv4.conf.all.rp_filter = 1\n", "rp_filter:routing:will-drop"),
    setting("s1", "net.ipv4.conf.all.rp_filter = 1\nnet.ipv4.conf.e1.rp_filter = 2\n", ""),
    setting("c1", "net.ipv4.conf.all.rp_filter = 1\n", ""),
    // The filter looks as for what the host sends itself.
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
    change("s1", "route add fd01::/64", "route add fd09::/64", "route:routing:not-the-other-network"),
    change("s1", "", "route add blackhole 10.1.0.12/32\n", "route:routing:black-hole"),
    change("s1", "", "rule add priority 9 to 10.1.0.12 prohibit\n", "rule:routing:prohibit"),
    change("gw2", "", "route add unreachable 10.2.0.192/26\n", "route:routing:unreachable"),
    change("c1", "via 10.1.0.1 ", "via 10.1.0.12 ", "gateway:routing:wrong-host"),
    change("c1", "via 10.1.0.1 ", "via 10.1.0.77 ", "gateway:routing:nobody-has-it"),
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

/// Lines that bring the files into force. What the kernel refuses stays out.
fn applied(folder: &Path) -> String {
    let mut text = String::new();
    for name in NAMES {
        let file = |name: &str, file: &str| folder.join(name).join(file);
        let _ = writeln!(
            text,
            "at {name} ip -force -batch {} >/dev/null 2>&1 || true",
            file(name, "routing.batch").display()
        );
        for line in fs::read_to_string(file(name, "sysctl.conf")).unwrap().lines() {
            let _ = writeln!(text, "at {name} sysctl -qw {}", line.replace(" = ", "="));
        }
    }
    text
}

/// Runs a script in a network namespace of its own.
fn script(text: &str) -> Run {
    let mut command = Command::new("unshare");
    command.args(["-n", "sh", "-c", &format!("{HOSTS}\n{text}")]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(command.spawn().unwrap(), Duration::from_secs(50))
}

/// Pings that are lost: from each client to every address, all at once, three
/// tries each on a busy machine.
fn lost(folder: &Path) -> String {
    let mut text = applied(folder);
    text += "try() { n=0; until at $1 ping -q -c 1 -W 1 $2 >/dev/null 2>&1; do n=$((n+1)); \
             [ $n -lt 3 ] || { echo lost $1 $2; return; }; done; }\nPIDS=''\n";
    for client in ["c1", "c2"] {
        let _ = writeln!(text, "try {client} 10.3.0.201 & PIDS=\"$PIDS $!\"");
        for at in 201..201 + ADDRESSES {
            let _ = writeln!(text, "try {client} 10.2.0.{at} & PIDS=\"$PIDS $!\"");
            let _ = writeln!(text, "try {client} fd02::{at} & PIDS=\"$PIDS $!\"");
        }
    }
    text += "wait $PIDS\n";
    script(&text).ok().to_owned()
}

fn check(change: &Change) {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), change);
    let path = folder.path().to_str().unwrap();
    let mute = ["--mute", "net.ipv4.fib*", "--mute", "net.ipv6.fib*", "--mute", "return:*"];
    let linted = run(&[&["route", "lint", path, "--json"], &mute[..]].concat());
    let report: Value = serde_json::from_str(&linted.stdout).unwrap_or_else(|_| panic!("{}", linted.stderr));
    let findings = report["findings"].as_array().unwrap();
    let is_grave = |finding: &&Value| finding["severity"] != "note";
    let found: Vec<String> = findings
        .iter()
        .filter(is_grave)
        .map(|finding| format!("{} {}", finding["host"].as_str().unwrap(), finding["id"].as_str().unwrap()))
        .collect();
    let wanted = found.iter().any(|it| it.starts_with(change.host) && it.ends_with(change.id));
    let lost = lost(folder.path());
    let what = format!("{} {:?} {:?}: lost:\n{lost}found: {found:?}", change.host, change.to, change.sysctl);
    assert_eq!(lost.is_empty(), change.id.is_empty(), "the kernel: {what}");
    assert_eq!(found.is_empty(), change.id.is_empty(), "the linter: {what}");
    assert!(change.id.is_empty() || wanted, "{what}");
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

/// The smallest site in which nobody can talk, from files and from captures of
/// the namespaces.
#[test]
fn root_nobody_can_talk_from_files_and_from_captures() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &change("c1", "10.2.0.0/24", "10.2.0.0/25", ""));
    let server = folder.path().join("s1/routing.batch");
    fs::write(&server, "address add 10.2.0.201/24 dev e0\n").unwrap();
    for name in ["c2", "gw2"] {
        fs::remove_dir_all(folder.path().join(name)).unwrap();
    }
    let client = folder.path().join("c1/routing.batch");
    let text = fs::read_to_string(&client).unwrap();
    let is_kept = |line: &&str| !line.contains("fd0") && !line.contains("10.3.");
    let text: String = text.lines().filter(is_kept).map(|line| format!("{line}\n")).collect();
    fs::write(&client, text.replace(" nexthop via 10.1.0.2 dev e0", "")).unwrap();
    let ids = |arguments: &[&str]| {
        let run = run(&[&["route", "lint", "--json"], arguments].concat());
        run.refused_with(8);
        let report: Value = serde_json::from_str(&run.stdout).unwrap();
        let findings = report["findings"].as_array().unwrap();
        let named = |it: &Value| format!("{} {}", it["host"].as_str().unwrap(), it["id"].as_str().unwrap());
        findings.iter().filter(|it| it["severity"] == "error").map(named).collect::<Vec<_>>()
    };
    let wanted = ["c1 route:routing:leaves-hosts-out", "s1 route:routing:no-route"];
    assert_eq!(ids(&[folder.path().to_str().unwrap()]), wanted);
    let mut text = String::new();
    let mut from = Vec::new();
    for name in ["c1", "s1", "gw1"] {
        let bundle = folder.path().join(format!("{name}.tar.gz")).to_str().unwrap().to_owned();
        let batch = folder.path().join(name).join("routing.batch");
        let _ = writeln!(text, "at {name} ip -batch {}", batch.display());
        if name == "gw1" {
            let _ = writeln!(text, "at gw1 sysctl -qw net.ipv4.ip_forward=1");
        }
        let _ = writeln!(
            text,
            "at {name} {} inspect --capture {bundle} --keep-addresses >/dev/null",
            program().display()
        );
        from.extend(["--from".to_owned(), bundle]);
    }
    script(&text).ok();
    let from: Vec<&str> = from.iter().map(String::as_str).collect();
    assert_eq!(ids(&from), wanted);
}
