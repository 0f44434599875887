//! Labs and daemons with the whole binary. Each test has a lab of its
//! own name, so that they can run beside each other.

use crate::common;
use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use crate::common::{Lab, Mount, alive, children, clearstream, eventually, finish, run, signal};
use clearstream_testkit::lab::two_hosts;

/// Writes a lab file: two hosts, one link for jumbo frames.
fn lab_file(folder: &Path, name: &str, link: &str) -> std::path::PathBuf {
    let path = folder.join(format!("{name}.toml"));
    fs::write(&path, two_hosts(name, &format!("mtu = 9000\n{link}"))).unwrap();
    path
}

#[test]
fn root_a_lab_runs_commands_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let lab = Lab::up(&lab_file(folder.path(), "e2e-exec", "delay = \"5ms\""), "e2e-exec");
    let ping = run(&["lab", "exec", "e2e-exec", "here", "--", "ping", "-c", "10", "-i", "0.02", "there"]);
    // iputils prints "rtt min/avg/max/mdev = 10.1/..."; 2 x 5 ms is the least it can be.
    let text = ping.ok();
    let minimum: f64 =
        text.split("mdev = ").nth(1).and_then(|rest| rest.split('/').next()).unwrap().parse().unwrap();
    assert!((9.99..15.0).contains(&minimum), "{text}");
    run(&["lab", "exec", "e2e-exec", "here", "--", "sh", "-c", "exit 7"]).refused_with(7);
    for name in ["TERM", "INT"] {
        let script = format!("trap 'echo caught; exit 3' {name}; echo ready; while :; do sleep 0.05; done");
        let arguments = ["lab", "exec", "e2e-exec", "here", "--", "sh", "-c", &script];
        let mut child = clearstream(&arguments).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        signal(child.id(), name);
        assert_eq!(child.wait().unwrap().code(), Some(3), "the program inside gets SIG{name}");
        out.read_to_string(&mut line).unwrap();
        assert_eq!(line, "ready\ncaught\n");
    }
    assert!(run(&["lab", "list"]).ok().contains("e2e-exec"));
    run(&["lab", "up", folder.path().join("e2e-exec.toml").to_str().unwrap()]).refused(9, &["e2e-exec"]);
    drop(lab);
    assert!(!run(&["lab", "list"]).ok().contains("e2e-exec"));
    run(&["lab", "exec", "e2e-exec", "here", "--", "true"]).refused(9, &["e2e-exec"]);
}

/// A root made by debootstrap or for a container may lack the file: its labs work by addresses. Entered by chroot(2), it
/// is not the root of its mount namespace, to which setns(2) would move, and no mount.
#[test]
fn root_a_lab_works_on_a_host_without_etc_hosts_and_in_a_chroot() {
    let without = "cp -a /etc \"$1/etc\" && rm -f \"$1/etc/hosts\" && mount --bind \"$1/etc\" /etc && shift";
    let chroot = "mkdir \"$1/root\" && cd \"$1/root\" && shift && set -- chroot . \"$@\" && for entry in /*; do
        if [ -L \"$entry\" ]; then cp -P \"$entry\" .
        elif [ -d \"$entry\" ]; then mkdir \".$entry\" && mount --rbind \"$entry\" \".$entry\"; fi || exit; done";
    let both = format!("root=$1 && {without} && set -- \"$root\" \"$@\" && {chroot}");
    for make in [without, chroot, &both] {
        let folder = tempfile::tempdir().unwrap();
        let lab = lab_file(folder.path(), "e2e-root", "");
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", &format!("{make} && exec \"$@\""), "sh"])
            .arg(folder.path())
            .arg(common::program())
            .args(["probe", "--json", "--count", "20", "--lab"])
            .arg(&lab)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let document = finish(command.spawn().unwrap(), Duration::from_secs(60)).json();
        for direction in document["directions"].as_array().unwrap() {
            assert_eq!(direction["udp"]["answered_count"], 20, "{make}: {document}");
        }
        assert_eq!(document["directions"].as_array().unwrap().len(), 2);
    }
}

/// The starter of a lab under a lock gets the lock back when the start has ended.
#[test]
fn root_a_lab_keeps_no_lock_of_who_started_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = lab_file(folder.path(), "e2e-lock", "");
    let lock = folder.path().join("lock");
    let mut locked = std::process::Command::new("flock");
    locked.arg(&lock).arg(common::program()).args(["lab", "up"]).arg(&file);
    locked.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let up = finish(locked.spawn().unwrap(), Duration::from_secs(60));
    let _lab = Lab("e2e-lock".to_owned());
    up.ok();
    let mut second = std::process::Command::new("flock");
    let second = second.arg("--nonblock").arg(&lock).arg("true").status().unwrap();
    assert!(second.success(), "the lock is still held");
}

/// SIGKILL leaves no time to take a lab down; its keeper does that then.
#[test]
fn root_a_lab_made_for_one_command_ends_with_it_also_when_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let file = lab_file(folder.path(), "e2e-owned", "");
    let state = Path::new("/run/clearstream/labs/e2e-owned/state.json");
    let mut command = clearstream(&["flow", "--lab", file.to_str().unwrap(), "-t", "60s"]);
    let mut flow = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    eventually(Duration::from_secs(30), "the lab is up", || state.exists() && children(flow.id()).len() >= 2);
    let known: serde_json::Value = serde_json::from_str(&fs::read_to_string(state).unwrap()).unwrap();
    let keeper = u32::try_from(known["keeper_pid"].as_u64().unwrap()).unwrap();
    assert!(alive(keeper));
    flow.kill().unwrap();
    flow.wait().unwrap();
    eventually(Duration::from_secs(30), "the keeper has ended", || !alive(keeper));
    eventually(Duration::from_secs(10), "the lab's folder is gone", || !state.exists());
}

#[test]
fn root_a_lab_without_privilege_names_what_is_missing() {
    // A copy where everybody may run it: the build folder may be private.
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("clearstream");
    fs::copy(common::program(), &program).unwrap();
    for path in [folder.path(), &program] {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    let mut command = std::process::Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program).args([
        "lab",
        "up",
        "two-hosts",
    ]);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    finish(command.spawn().unwrap(), Duration::from_secs(20)).refused(5, &["run this as root"]);
}

/// A delay line whose core others hold: what is measured then is not the path.
#[test]
fn root_a_flow_that_the_delay_line_limited_has_a_notice() {
    let folder = tempfile::tempdir().unwrap();
    let _lab = Lab::up(&lab_file(folder.path(), "e2e-slow", "delay = \"1ms\""), "e2e-slow");
    let flow = || run(&["flow", "--lab", "e2e-slow", "-t", "800ms", "--warm-up", "0s", "--json"]).json();
    let state = fs::read_to_string("/run/clearstream/labs/e2e-slow/state.json").unwrap();
    let state: serde_json::Value = serde_json::from_str(&state).unwrap();
    let threads = fs::read_dir(format!("/proc/{}/task", state["keeper_pid"])).unwrap().flatten();
    let is_line = |thread: &fs::DirEntry| {
        fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| name.trim() == "delay-line")
    };
    let line = threads.filter(is_line).map(|thread| thread.file_name()).next().unwrap();
    let pinned = std::process::Command::new("taskset").args(["-cp", "0"]).arg(line).output().unwrap();
    assert!(pinned.status.success(), "{pinned:?}");
    // 20 ms of every 25, before the line's own real-time priority.
    let script = "import time\nwhile True:\n e = time.monotonic() + 0.02\n while time.monotonic() < e: pass\n time.sleep(0.005)";
    // It ends with this thread, also when that panics or is killed.
    let mut hog = std::process::Command::new("setpriv");
    hog.args(["--pdeathsig", "KILL", "chrt", "-f", "50", "taskset", "-c", "0", "python3", "-c", script]);
    let mut hog = hog.spawn().unwrap();
    let limited = flow();
    hog.kill().unwrap();
    hog.wait().unwrap();
    let marked = |flow: &serde_json::Value| {
        let notices = flow["summary"]["notices"].as_array().into_iter().flatten();
        notices.filter(|notice| notice["id"] == "delay-line-limit").count()
    };
    assert_eq!(marked(&limited), 1, "{}: {}", limited["summary"]["notices"], limited["delay_lines"]);
    let lines = limited["delay_lines"].as_array().unwrap();
    assert!(lines.len() == 2 && lines.iter().any(|line| line["relay_limited"] == true), "{lines:?}");
    assert!(run(&["lab", "list"]).ok().contains("running, delay line was the limit"));
    assert!(run(&["lab", "show", "e2e-slow"]).ok().contains("not the path, was the limit"));
}

#[test]
fn root_flow_and_probe_inside_a_lab() {
    let folder = tempfile::tempdir().unwrap();
    let _lab = Lab::up(&lab_file(folder.path(), "e2e-flow", "delay = \"5ms\""), "e2e-flow");
    let flow = run(&[
        "flow",
        "--lab",
        "e2e-flow",
        "--duration",
        "1s",
        "--warm-up",
        "500ms",
        "--interval",
        "250ms",
        "--json",
    ])
    .json();
    assert_eq!(flow["summary"]["complete"], true);
    let min_rtt = flow["summary"]["min_rtt_ns"].as_u64().unwrap();
    assert!(min_rtt >= 9_900_000, "the link delays by 2 x 5 ms, the kernel saw {min_rtt} ns");
    let probe = run(&["probe", "--lab", "e2e-flow", "--count", "20", "--interval", "10ms", "--json"]).json();
    for direction in probe["directions"].as_array().unwrap() {
        assert!(direction["udp"]["min_ns"].as_u64().unwrap() >= 9_900_000, "{direction}");
        assert_eq!(direction["path_mtu_bytes"], 9000);
    }
}

/// In series they would take two round trips each: 80 s, longer than any limit.
#[test]
fn root_many_flows_over_a_long_path_connect_beside_one_another() {
    let folder = tempfile::tempdir().unwrap();
    let _lab = Lab::up(&lab_file(folder.path(), "e2e-many", "delay = \"200ms\""), "e2e-many");
    for (protocol, flows) in [("tcp", 100), ("udp", 100)] {
        let line = format!(
            "flow --lab e2e-many --protocol {protocol} -P {flows} -t 1s --warm-up 1s --pacing 2Mb/s --json"
        );
        let document = run(&line.split(' ').collect::<Vec<_>>()).json();
        let summary = &document["summary"];
        assert_eq!(summary["complete"], true, "{protocol}");
        assert_eq!(summary["flow_goodput_bps"].as_array().unwrap().len(), flows, "{protocol}");
        assert!(summary["received_bytes"].as_u64().unwrap() > 0, "{protocol}");
    }
}

#[test]
fn root_an_ipv6_flow_carries_its_code_point_and_keeps_to_its_interface() {
    let folder = tempfile::tempdir().unwrap();
    let _lab = Lab::up(&lab_file(folder.path(), "e2e-ipv6", ""), "e2e-ipv6");
    // AF11 (RFC 2597) is code point 10; the receiving kernel counts by itself.
    let rules = "table ip6 t { chain c { type filter hook input priority 0; \
                 ip6 saddr fd00::1 ip6 dscp af11 tcp flags & (syn | ack) == ack counter; }; }";
    run(&["lab", "exec", "e2e-ipv6", "there", "--", "nft", rules]).ok();
    let options = ["--lab", "e2e-ipv6", "--address", "fd00::2", "--duration", "500ms", "--warm-up", "0s"];
    let flow = |interface: &str| {
        run(&[&["flow"], &options[..], &["--dscp", "10", "--bind-interface", interface, "--json"]].concat())
    };
    let document = flow("eth0").json();
    assert_eq!(document["summary"]["complete"], true);
    let received = document["summary"]["received_bytes"].as_u64().unwrap();
    let listed = run(&["lab", "exec", "e2e-ipv6", "there", "--", "nft", "-j", "list", "ruleset"]);
    let listed: serde_json::Value = serde_json::from_str(listed.ok()).unwrap();
    let counted = listed["nftables"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|object| object["rule"]["expr"].as_array().into_iter().flatten())
        .find_map(|expression| expression["counter"]["bytes"].as_u64());
    assert!(counted.unwrap() >= received && received > 0, "{counted:?} counted, {received} received");
    flow("eth7").refused(9, &["eth7", "No such device"]);
}

#[test]
fn root_the_core_that_packets_are_steered_to_is_found() {
    let folder = tempfile::tempdir().unwrap();
    for core in ["0", "1"] {
        let name = format!("e2e-steer-{core}");
        let path = lab_file(folder.path(), &name, "");
        let text = fs::read_to_string(&path).unwrap();
        let (head, there) = text.rsplit_once("interface = \"eth0\"").unwrap();
        fs::write(&path, format!("{head}interface = \"eth0\"\nreceive-cores = \"{core}\"{there}")).unwrap();
        let _lab = Lab::up(&path, &name);
        let flow = run(&["flow", "--lab", &name, "--duration", "1s", "--warm-up", "200ms", "--json"]).json();
        let found = &flow["summary"]["interrupt_core"];
        assert_eq!(found["core"].to_string(), core, "{found}");
    }
}

#[test]
fn root_faults_of_a_lab_are_injected_shown_and_cleared() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("e2e-fault.toml");
    let end = |host: &str, interface: &str, address: &str| {
        format!(
            "[[switch.ends]]\nhost = \"{host}\"\ninterface = \"{interface}\"\naddresses = [\"{address}/24\"]\n"
        )
    };
    let text = format!(
        "schema = \"clearstream.lab\"\nversion = 1\nname = \"e2e-fault\"\ntitle = \"a lab of a test\"\n\
         [[host]]\nname = \"here\"\n[[host.route]]\nto = \"default\"\nvia = \"10.0.1.9\"\n\
         [[host]]\nname = \"gate\"\nrouter = true\n\
         [[host]]\nname = \"there\"\n[[host.route]]\nto = \"default\"\nvia = \"10.0.2.9\"\n\
         [[switch]]\nname = \"left\"\n{}{}[[switch]]\nname = \"right\"\n{}{}",
        end("here", "eth0", "10.0.1.1"),
        end("gate", "left0", "10.0.1.9"),
        end("gate", "right0", "10.0.2.9"),
        end("there", "eth0", "10.0.2.1"),
    );
    fs::write(&path, text).unwrap();
    let _lab = Lab::up(&path, "e2e-fault");
    let ping = |to: &str| {
        let arguments =
            ["lab", "exec", "e2e-fault", "here", "--", "ping", "-c", "2", "-i", "0.1", "-W", "1", to];
        run(&arguments).code() == 0
    };
    assert!(ping("10.0.2.1"));
    for (fault, at_gate) in
        [(["gate", "drop"], true), (["gate:right0", "link-down"], true), (["gate", "kill"], false)]
    {
        let made = run(&["lab", "fault", "e2e-fault", fault[0], fault[1], "--json"]).json();
        assert_eq!(made["faults"].as_array().unwrap().len(), 1, "{made}");
        assert!(!ping("10.0.2.1"), "{fault:?}");
        assert_eq!(ping("10.0.1.9"), at_gate, "{fault:?}");
        assert!(run(&["lab", "list"]).ok().contains("running, 1 fault"));
        assert!(run(&["lab", "show", "e2e-fault"]).ok().contains("injected fault: gate"));
        assert!(run(&["lab", "fault", "e2e-fault", "gate", "--clear"]).ok().contains("cleared: gate"));
        assert!(ping("10.0.2.1"), "{fault:?}");
    }
    assert!(run(&["lab", "fault", "e2e-fault", "--clear"]).ok().contains("no fault to clear"));
    run(&["lab", "fault", "e2e-fault", "here", "drop"]).refused(2, &["no router"]);
    run(&["lab", "fault", "e2e-fault", "gaet", "kill"]).refused(9, &["here, gate, there"]);
    run(&["lab", "fault", "e2e-fault", "gate:left0", "kill"]).refused(2, &["`cut`"]);
    run(&["lab", "fault", "e2e-fault", "gate"]).refused_by_usage("KIND");
}

#[test]
fn a_paired_daemon_serves_and_a_stranger_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let port = clearstream_testkit::listening::free_port();
    let listen = format!("127.0.0.1:{port}");
    let pair = |identity: &str, file: &str| {
        let token =
            run(&["pair", "create", "tester", "--address", &listen, "--identity", identity]).ok().to_owned();
        let mut accept = clearstream(&["pair", "accept", file]);
        accept.stdin(std::process::Stdio::piped());
        let mut accept = accept.spawn().unwrap();
        std::io::Write::write_all(&mut accept.stdin.take().unwrap(), token.as_bytes()).unwrap();
        finish(accept, Duration::from_secs(10)).ok();
    };
    let (identity, good, bad) = (at("identity"), at("good"), at("bad"));
    pair(&identity, &good);
    pair(&at("another"), &bad);

    let daemon = clearstream(&["serve", "--listen", &listen, "--identity", &identity]).spawn().unwrap();
    eventually(Duration::from_secs(10), "the daemon listens", || {
        std::net::TcpStream::connect(&listen).is_ok()
    });
    let flow = |pairing: &str| {
        run(&[
            "flow",
            &listen,
            "--pairing",
            pairing,
            "--duration",
            "600ms",
            "--warm-up",
            "0s",
            "--interval",
            "200ms",
            "--json",
        ])
    };
    assert_eq!(flow(&good).json()["summary"]["complete"], true);
    flow(&bad).refused(4, &["pair"]);
    run(&["pair", "revoke", "tester", "--identity", &identity]).ok();
    flow(&good).refused(4, &["pair"]);
    signal(daemon.id(), "INT");
    finish(daemon, Duration::from_secs(10)).ok();
    flow(&good).refused(3, &[&listen]);
}

/// A file system that is unmounted outside is released: a host of a lab keeps its mounts apart, and follows this.
#[test]
fn root_a_lab_holds_no_mount_of_the_machine() {
    let folder = tempfile::tempdir().unwrap();
    let point = folder.path().join("with blank");
    fs::create_dir(&point).unwrap();
    let mounted = Mount::tmpfs(point.clone(), "size=1m");
    let lab = Lab::of_two_hosts(folder.path(), "lab-mounts");
    let inside =
        || run(&["lab", "exec", &lab.0, "here", "--", "cat", "/proc/self/mountinfo"]).ok().to_owned();
    let line = format!(" {} ", point.display()).replace(" blank", "\\040blank");
    assert!(inside().contains(&line), "{line}");
    // What a host mounts over it is its own.
    run(&["lab", "exec", &lab.0, "there", "--", "mount", "-t", "tmpfs", "own", point.to_str().unwrap()]).ok();
    drop(mounted);
    eventually(Duration::from_secs(20), "the host has left it", || !inside().contains(&line));
    let there = run(&["lab", "exec", &lab.0, "there", "--", "cat", "/proc/self/mountinfo"]).ok().to_owned();
    assert!(there.lines().any(|text| text.contains(&line) && text.contains(" own ")), "{there}");
}
