//! `route lint` and `route new` with the whole binary: findings about files, and
//! that the kernel behaves as they state, in network namespaces.

use crate::common;
use crate::watched;
use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use crate::common::{Run, assert_valid, finish, program, run};
use serde_json::Value;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/configs")
}

fn path(name: &str) -> String {
    fixtures().join(name).to_str().unwrap().to_owned()
}

/// Functions for scripts: `host NAME` makes a network namespace that ends with
/// the script, `at NAME COMMAND` runs there.
const HOSTS: &str = r#"
HELD=""
trap '[ -z "$HELD" ] || kill $HELD' EXIT
host() {
    unshare -n sleep 55 >/dev/null 2>&1 & pid=$!
    HELD="$HELD $pid"
    while [ "$(readlink /proc/$pid/ns/net)" = "$(readlink /proc/$$/ns/net)" ]; do sleep 0.01; done
    eval "PID_$1=$pid"
    at $1 ip link set lo up
}
at() { eval "holder=\$PID_$1"; shift; nsenter -t $holder -n "$@"; }
"#;

/// Runs a script in a network namespace of its own; `$LINT` is the linter.
fn script(text: &str) -> Run {
    let script = format!(
        "set -e\nLINT='{} route lint --mute net.*'\nip link set lo up\n{HOSTS}\n{text}",
        program().display()
    );
    let mut command = Command::new("unshare");
    command.args(["-n", "sh", "-c", &script]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(command.spawn().unwrap(), Duration::from_secs(50))
}

/// Ids in a report of the linter among other output.
fn ids(text: &str) -> Vec<String> {
    let start = text.find("{\n").unwrap_or_else(|| panic!("no report in {text}"));
    let report: Value =
        serde_json::from_str(&text[start..]).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_valid("lint", &report);
    let findings = report["findings"].as_array().unwrap();
    findings.iter().map(|finding| finding["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn files_give_findings_with_file_line_and_exit_code() {
    let storage = run(&["route", "lint", &path("paper-storage")]);
    storage.refused(8, &["findings of severity error"]);
    for part in ["route-ib1:2", "rule-ib1:3", "instead:", "[rule:no-op:shadowed]"] {
        assert!(storage.stdout.contains(part), "{part}: {}", storage.stdout);
    }
    let both = run(&["route", "lint", &path("paper-storage"), &path("paper-compute"), "--json"]);
    assert_eq!(both.code(), 8);
    assert!(ids(&both.stdout).contains(&"route:routing:not-the-other-network".to_owned()), "{}", both.stdout);
    let fabric = path("paper-fabric.toml");
    let alone = run(&["route", "lint", &path("paper-compute"), "--fabric", &fabric, "--json"]);
    assert!(
        ids(&alone.stdout).contains(&"route:routing:not-the-other-network".to_owned()),
        "{}",
        alone.stdout
    );
    // Files of one host, one by one.
    let files = [path("paper-storage/rule-ib1"), path("paper-storage/route-ib1")];
    let two =
        run(&["route", "lint", &files[0], &files[1], "--json", "--mute", "route:*", "--mute", "rule:*"]);
    let rest = ids(&two.stdout);
    assert!(rest.contains(&"gateway:routing:missing-from-multipath".to_owned()), "{rest:?}");
    assert!(!rest.iter().any(|id| id.starts_with("ru") || id.starts_with("route:")), "{rest:?}");
    run(&["route", "lint", &path("paper-corrected")]).ok();
    run(&["route", "lint", "/nowhere"]).refused(7, &["/nowhere"]);
    run(&["route", "lint", &path("paper-storage"), "--mute", "x y"]).refused(2, &["--mute"]);
    let sarif = run(&["route", "lint", &path("paper-compute"), "--sarif"]);
    assert!(sarif.stdout.contains("\"clearstream route lint\""), "{}", sarif.stdout);
}

/// Nothing read is not nothing wrong: a file that nobody understands is named, and what was checked is counted.
#[test]
fn a_file_of_which_nothing_is_understood_is_no_pass() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let unknown = file("vars.yml", "foo: bar\n");
    let good =
        file("good.sh", "ip address add 10.1.0.5/24 dev e0\nip route add 10.9.0.0/16 via 10.1.0.1 dev e0\n");
    run(&["route", "lint", &unknown]).refused(2, &["vars.yml", "netplan has"]);
    let both = run(&["route", "lint", &good, &unknown]);
    both.refused(8, &["nothing was understood in", "vars.yml"]);
    for part in
        ["on 2 settings (1 address, 1 route of 1 host, in 1 file); 1 part not checked", "not checked: "]
    {
        assert!(both.stdout.contains(part), "{part}: {}", both.stdout);
    }
    let report = run(&["route", "lint", &good, "--json"]);
    let report: Value = serde_json::from_str(report.ok()).unwrap();
    assert_eq!((&report["checked"]["route_count"], &report["checked"]["file_count"]), (&1.into(), &1.into()));
}

#[test]
fn a_fabric_starts_from_files() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("site.toml");
    let out = out.to_str().unwrap();
    run(&["route", "new", "--files", &path("paper-corrected"), "--name", "site", "--out", out]).ok();
    let text = fs::read_to_string(out).unwrap();
    assert!(text.contains("hosts = [\"sn[1-6]\"]"), "{text}");
    run(&["route", "plan", out]).ok();
    // What is there is not written over.
    run(&["route", "new", "--files", &path("paper-corrected"), "--out", out]).refused(7, &["site.toml"]);
    run(&["route", "new"]).refused(2, &["--from"]);
}

/// The order of rules without priority, what an on-link route hides, what the
/// kernel refuses: as the findings about the published files state.
#[test]
fn root_the_kernel_treats_the_published_files_as_the_findings_state() {
    let mut text = String::from(
        "ip link add ib1 type veth peer name far; ip link set far up; ip link set ib1 up; ip address add 10.10.0.201/24 dev ib1\n",
    );
    for line in fs::read_to_string(fixtures().join("paper-storage/rule-ib1")).unwrap().lines() {
        if !line.starts_with('#') {
            let _ = writeln!(text, "ip rule add {line}");
        }
    }
    text += "echo rules; ip rule show\n\
             echo refused; ip route add default via 10.10.1.91 table 1 2>&1 || true\n\
             ip route add default via 10.10.0.12 table 2\n\
             ip rule add from 10.10.0.201 lookup 2\n\
             echo gateway; ip route get 10.100.0.1 from 10.10.0.201\n\
             ip route add 10.100.0.0/16 dev ib1 scope link table 2\n\
             echo hidden; ip route get 10.100.0.1 from 10.10.0.201\n\
             echo twice; ip route add default via 10.10.0.13 table 2 2>&1 || true\n\
             ip rule add from 10.10.0.201 lookup 99 priority 5; ip rule del from 10.10.0.201 lookup 2\n\
             echo empty; ip route get 10.10.0.7 from 10.10.0.201\n\
             echo lint; $LINT --json || true\n";
    let run = script(&text);
    let out = run.ok();
    let part = |from: &str, to: &str| {
        let start = out.find(&format!("{from}\n")).unwrap_or_else(|| panic!("{from}: {out}"));
        let end = out[start..].find(&format!("\n{to}\n")).map_or(out.len(), |length| start + length);
        out[start..end].to_owned()
    };
    // The later one is in front: the earlier one is shadowed.
    let rules = part("rules", "refused");
    let at = |rule: &str| rules.find(rule).unwrap_or_else(|| panic!("{rule}: {rules}"));
    assert!(at("from 10.10.0.12 lookup 2") < at("from 10.10.0.12 lookup 1"), "{rules}");
    assert!(part("refused", "gateway").contains("invalid gateway"), "{out}");
    assert!(part("gateway", "hidden").contains("via 10.10.0.12"), "{out}");
    let hidden = part("hidden", "twice");
    assert!(hidden.contains("dev ib1") && !hidden.contains("via"), "{hidden}");
    assert!(part("twice", "empty").contains("File exists"), "{out}");
    assert!(part("empty", "lint").contains("10.10.0.7 from 10.10.0.201 dev ib1"), "{out}");
    let found = ids(&part("lint", "never"));
    for id in [
        "rule:no-op:address-nobody-has",
        "rule:no-op:empty-table",
        "rule:no-op:duplicate",
        "route:routing:on-link-beats-default",
    ] {
        // The kernel knows priorities only, so that none of them can lack one.
        assert_eq!(found.contains(&id.to_owned()), id != "rule:no-op:duplicate", "{id}: {found:?}");
    }
}

/// A server whose clients are reached by table 1 alone.
const FILTERED: &str = r#"
host client
ip link add ib1 type veth peer name ib0 netns $PID_client
ip address add 10.10.0.201/24 dev ib1; ip link set ib1 up
at client ip address add 10.10.0.11/24 dev ib0; at client ip address add 10.100.0.1/16 dev lo
at client ip link set ib0 up
# Its requests for link addresses would be dropped too, and no packet come.
at client sysctl -qw net.ipv4.conf.all.arp_announce=2
ip route add 10.100.0.0/16 via 10.10.0.11 dev ib1 table 1
sysctl -qw net.ipv4.conf.all.rp_filter=1
arrives() { at client ping -q -c 2 -i 0.2 -W 1 -I 10.100.0.1 10.10.0.201 >/dev/null 2>&1 && echo yes || echo no; }
dropped() { awk '/^TcpExt:/ { if (n++) { print $at } else { for (i = 1; i <= NF; i++) if ($i == "IPReversePathFilter") at = i } }' /proc/net/netstat; }
"#;

#[test]
fn root_a_filter_drops_where_the_finding_states() {
    let run = script(&format!(
        "{FILTERED}ip rule add priority 9 to 10.55.0.0/16 lookup 1\n\
         before=$(dropped); echo arrives $(arrives); echo dropped $(( $(dropped) - before ))\n\
         $LINT --json || true\n"
    ));
    let out = run.ok();
    assert!(out.contains("arrives no\ndropped 2"), "{out}");
    assert!(ids(out).contains(&"rp_filter:routing:will-drop".to_owned()), "{out}");
    let run = script(&format!(
        "{FILTERED}ip rule add priority 9 from 10.10.0.201 lookup 1\necho arrives $(arrives)\n$LINT --json\n"
    ));
    let out = run.ok();
    assert!(out.contains("arrives yes"), "{out}");
    assert!(ids(out).is_empty(), "{out}");
}

#[test]
fn root_a_filter_does_not_see_the_mark_without_src_valid_mark() {
    let marked = format!(
        "{FILTERED}ip rule add priority 9 fwmark 7 lookup 1\nsysctl -qw net.ipv4.fwmark_reflect=1\n\
         nft -f - <<'END'\ntable ip marks {{\nchain arrive {{\n\
         type filter hook prerouting priority mangle;\niifname \"ib1\" meta mark set 7\n}}\n}}\nEND\n"
    );
    let run = script(&format!("{marked}echo arrives $(arrives)\n$LINT --json || true\n"));
    let out = run.ok();
    assert!(out.contains("arrives no"), "{out}");
    assert!(ids(out).contains(&"src_valid_mark:routing:will-drop".to_owned()), "{out}");
    let run = script(&format!(
        "{marked}sysctl -qw net.ipv4.conf.all.src_valid_mark=1\necho arrives $(arrives)\n\
         $LINT --mute rule:no-op:mark-never-set --json\n"
    ));
    let out = run.ok();
    assert!(out.contains("arrives yes"), "{out}");
    assert!(ids(out).is_empty(), "{out}");
}

/// A batch of the server's ifcfg files: the lines are what goes behind `ip
/// rule add` and `ip route add`.
fn batch_of_ifcfg(folder: &Path) -> String {
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let mut batch = String::new();
    for line in read("ifcfg-ib1").lines() {
        if let Some((_, address)) = line.split_once('=').filter(|(key, _)| key.starts_with("IPADDR")) {
            let _ = writeln!(batch, "address add {address}/24 dev ib1");
        }
    }
    batch.push_str("link set ib1 up\n");
    for line in read("route-ib1").replace("\\\n", " ").lines() {
        let _ = writeln!(batch, "route add {line}");
    }
    for line in read("rule-ib1").lines() {
        let _ = writeln!(batch, "rule add {line}");
    }
    batch
}

/// The corrected files are taken by `ip`, and each of the server's addresses is
/// reached, and replies, by its own gateway.
#[test]
fn root_the_corrected_files_route_as_written() {
    let folder = fixtures().join("paper-corrected");
    let mut text = String::from(
        "for name in aries ipoib; do ip link add $name type bridge; ip link set $name up; done\n\
         join() { ip link add $1-$2 mtu $4 type veth peer name $3 mtu $4 netns $(eval echo \\$PID_$1)\n\
         ip link set $1-$2 master $2; ip link set $1-$2 up; }\n\
         host nsd1; host compute1; join nsd1 ipoib ib1 65520; join compute1 aries ipogif0 16000\n",
    );
    for number in 1..=6 {
        let name = format!("sn{number}");
        let _ = writeln!(text, "host {name}; join {name} aries ipogif0 16000; join {name} ipoib ib0 65520");
    }
    let hosts = ["nsd1", "compute1", "sn1", "sn2", "sn3", "sn4", "sn5", "sn6"];
    for name in hosts {
        if name == "nsd1" {
            let _ = writeln!(text, "at nsd1 ip -batch - <<'END'\n{}END", batch_of_ifcfg(&folder.join(name)));
        } else {
            let _ =
                writeln!(text, "at {name} ip -batch {}", folder.join(name).join("routing.batch").display());
        }
        for line in fs::read_to_string(folder.join(name).join("sysctl.conf")).unwrap().lines() {
            let (key, value) = line.split_once('=').unwrap();
            // Some belong to the first namespace alone.
            if key.contains("forward") || key.contains("filter") || key.contains("multipath") {
                let _ = writeln!(text, "at {name} sysctl -qw {}='{}'", key.trim(), value.trim());
            }
        }
    }
    text += "forwarded() { at $1 awk '/^Ip:/ && n++ { print $7 }' /proc/net/snmp; }\n\
             for n in 1 2 3 4 5 6; do\n\
             echo there $n $(at compute1 ip route get 10.10.0.21$n)\n\
             echo back $n $(at nsd1 ip route get 10.100.0.1 from 10.10.0.21$n)\n\
             at compute1 ping -q -c $n -i 0.01 -W 2 10.10.0.21$n > /dev/null\n\
             done\n\
             for n in 1 2 3 4 5 6; do echo forwarded $n $(forwarded sn$n); done\n\
             for name in nsd1 compute1 sn1 sn2 sn3 sn4 sn5 sn6; do at $name $LINT; done\n";
    let run = script(&text);
    let out = run.ok();
    for number in 1..=6 {
        let line = |start: &str| {
            let start = format!("{start} {number} ");
            out.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("{start}: {out}"))
        };
        assert!(line("there").contains(&format!("via 10.100.0.9{number} ")), "{out}");
        assert!(line("back").contains(&format!("via 10.10.0.1{number} ")), "{out}");
        // As many requests as its number, and as many replies.
        assert!(line("forwarded").ends_with(&format!(" {}", 2 * number)), "{out}");
    }
    assert_eq!(out.matches("0 errors, 0 warnings and 0 notes").count(), hosts.len(), "{out}");
}

/// Hosts of a lab are captured, linted together, and give a fabric that is
/// planned; with replaced addresses too.
#[test]
fn root_captured_hosts_of_a_lab_become_a_fabric() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("e2e-capture.toml");
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../labs/gateways-6.toml"));
    fs::write(&file, text.unwrap().replace("\"gateways-6\"", "\"e2e-capture\"")).unwrap();
    let lab = common::Lab::up(&file, "e2e-capture");
    for (kind, option) in [("kept", &["--keep-addresses"][..]), ("alike", &["--alike", "any phrase"][..])] {
        let mut bundles = Vec::new();
        for host in ["compute-1", "compute-2", "storage-1", "gw1", "gw2"] {
            let bundle = folder.path().join(format!("{host}-{kind}.tar.gz")).to_str().unwrap().to_owned();
            let mut arguments = vec![
                "lab",
                "exec",
                "e2e-capture",
                host,
                "--",
                program().to_str().unwrap(),
                "inspect",
                "--capture",
            ];
            arguments.push(&bundle);
            arguments.extend(option);
            run(&arguments).ok();
            bundles.push(bundle);
        }
        let from: Vec<&str> = bundles.iter().flat_map(|bundle| ["--from", bundle.as_str()]).collect();
        let report = run(&[&["route", "lint", "--json"], &from[..]].concat());
        assert_eq!(ids(&report.stdout), Vec::<String>::new(), "{}", report.stdout);
        let fabric = folder.path().join(format!("{kind}.toml"));
        let fabric = fabric.to_str().unwrap();
        run(&[&["route", "new", "--name", kind, "--out", fabric], &from[..]].concat()).ok();
        let plan = run(&["route", "plan", fabric]);
        plan.ok();
        let text = fs::read_to_string(fabric).unwrap();
        assert_eq!(text.contains("10.100.0.[91-92]"), kind == "kept", "{text}");
        assert_eq!(text.contains("10.100."), kind == "kept", "{text}");
    }
    drop(lab);
}

/// A site without connectivity: the client's route leaves the server out, and
/// the server has none. From captures, by the fabric and without it.
#[test]
fn root_lost_connectivity_is_found_in_captures_with_and_without_the_fabric() {
    let fabric = watched::Fabric::up("e2e-lint-fabric", 2, "return-path = \"none\"");
    fabric.exec(
        "c1",
        "ip route add 10.10.0.0/25 nexthop via 10.100.0.11 dev compute0 nexthop via 10.100.0.12 dev compute0",
    );
    let lost = fabric.finish(fabric.command("c1", &["ping", "-q", "-c", "1", "-W", "1", "10.10.0.201"]));
    assert_ne!(lost.code(), 0, "the kernel agrees: {}", lost.stdout);
    let mut bundles = Vec::new();
    for host in ["c1", "s1", "gw1", "gw2"] {
        let bundle = fabric.folder.path().join(format!("{host}.tar.gz")).to_str().unwrap().to_owned();
        let arguments = [program().to_str().unwrap(), "inspect", "--capture", &bundle, "--keep-addresses"];
        fabric.finish(fabric.command(host, &arguments)).ok();
        bundles.push(bundle);
    }
    let from: Vec<&str> = bundles.iter().flat_map(|bundle| ["--from", bundle.as_str()]).collect();
    for options in [vec![], vec!["--fabric", fabric.file.as_str()]] {
        let report = run(&[&["route", "lint", "--json"], &from[..], &options].concat());
        report.refused_with(8);
        let found = ids(&report.stdout);
        for id in ["route:routing:leaves-hosts-out", "route:routing:no-route"] {
            assert_eq!(found.iter().filter(|it| *it == id).count(), 1, "{options:?}: {id} in {found:?}");
        }
    }
}
