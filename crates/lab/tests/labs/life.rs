//! Lifecycle of real labs: up, found, entered, changed, taken down, and killed.

use std::{
    fs,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use clearstream_lab::{LabError, down, file, list, open, up};
use clearstream_schema::{control::FailureKind, failure::Classified};
use serde_json::Value;

use crate::common::{Inside, Lab, keeper, network_namespaces, output, pair};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Whether the process has exited, or is an unreaped zombie without other
/// threads.
fn has_ended(pid: rustix::process::Pid) -> bool {
    let folder = format!("/proc/{}", pid.as_raw_nonzero());
    let threads = fs::read_dir(format!("{folder}/task")).map_or(0, Iterator::count);
    let zombie = fs::read_to_string(format!("{folder}/stat"))
        .is_ok_and(|stat| stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z')));
    threads == 0 || (zombie && threads == 1)
}

fn gone(mut what: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !what() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

#[test]
fn root_lab_is_up_found_entered_and_leaves_nothing() {
    let file = pair("life", "mtu = 4000");
    let name = file.name.clone();
    let lab = Lab::up(&file).unwrap();
    assert!(list().unwrap().iter().any(|running| running.file().name == name));
    assert_eq!(open(&name).unwrap().file(), &file);
    assert_eq!(lab.0.address("there").unwrap().to_string(), "10.0.0.2");
    assert_eq!(output(&lab.0, "here", "hostname").trim(), "here");
    assert!(output(&lab.0, "here", "getent hosts there").contains("fd00::2"));
    assert_eq!(
        output(&lab.0, "there", "ls /sys/class/net").split_whitespace().collect::<Vec<_>>(),
        ["eth0", "lo"]
    );
    let hosts = [Inside::of(&lab.0, "here"), Inside::of(&lab.0, "there")];
    let inside = hosts.each_ref().map(|host| host.run(|| fs::read_link("/proc/thread-self/ns/net").unwrap()));
    assert!(inside.iter().all(|namespace| network_namespaces().contains(namespace)));
    // Processes inside are ended with the lab.
    down(&name).unwrap();
    assert!(inside.iter().all(|namespace| !network_namespaces().contains(namespace)));
    assert!(!Path::new("/run/clearstream/labs").join(&name).exists());
    assert!(!Path::new("/run/clearstream/labs").join(format!("{name}.lock")).exists());
    assert!(matches!(open(&name), Err(LabError::NotRunning { .. })));
    assert!(matches!(down(&name), Err(LabError::NothingToStop { .. })));
    let mut command = Command::new("true");
    command.stdin(Stdio::null());
    assert!(matches!(lab.0.command("here", command), Err(LabError::NotRunning { .. })));
}

/// The kernel detects a carrier at once only where an interface's index is not
/// its peer's (net/core/link_watch.c); else a lab waits for up to a second.
#[test]
fn root_ends_of_a_plain_link_have_different_numbers() {
    let lab = Lab::up(&pair("numbers", "mtu = 4000")).unwrap();
    for host in ["here", "there"] {
        let link = &json(&output(&lab.0, host, "ip -j link show dev eth0"))[0];
        assert!(link["ifindex"].is_u64() && link["link_index"].is_u64(), "{link}");
        assert_ne!(link["ifindex"], link["link_index"], "{host}: {link}");
        assert_eq!(link["operstate"], "UP", "{link}");
    }
}

#[test]
fn root_ip_shows_the_settings_of_the_file() {
    let mut file = pair("oracle", "mtu = 4000\ndelay = \"1ms\"");
    file.hosts[0].congestion_control = Some("reno".to_owned());
    file.hosts[0].sysctls.insert("net.ipv4.tcp_rmem".to_owned(), "4096 65536 8388608".to_owned());
    let lab = Lab::up(&file).unwrap();
    let link = &json(&output(&lab.0, "here", "ip -j -d link show eth0"))[0];
    assert_eq!(link["mtu"], 4000);
    // Held by the kernel, or copied where that is not supported.
    assert!(["veth", "tun"].iter().any(|kind| link["linkinfo"]["info_kind"] == *kind), "{link}");
    let addresses = json(&output(&lab.0, "here", "ip -j address show dev eth0"));
    let addresses = addresses[0]["addr_info"].as_array().unwrap();
    for (local, length) in [("10.0.0.1", 24), ("fd00::1", 64)] {
        let found = addresses.iter().find(|address| address["local"] == local).unwrap();
        assert_eq!(found["prefixlen"], length);
    }
    for family in ["-4", "-6"] {
        let routes = json(&output(&lab.0, "here", &format!("ip -j {family} route show proto kernel")));
        let route =
            routes.as_array().unwrap().iter().find(|route| route["metrics"][0]["congestion"] == "reno");
        assert!(route.is_some(), "{routes}");
    }
    assert_eq!(output(&lab.0, "here", "cat /proc/sys/net/ipv4/tcp_rmem").trim(), "4096\t65536\t8388608");
    // Changes at run time, and their persistence.
    lab.0.set_mtu(0, 9000).unwrap();
    for host in ["here", "there"] {
        assert_eq!(json(&output(&lab.0, host, "ip -j link show eth0"))[0]["mtu"], 9000);
    }
    let cores = "1".parse().unwrap();
    lab.0.set_receive_cores("there", "eth0", Some(&cores)).unwrap();
    let mask = || output(&lab.0, "there", "cat /sys/class/net/eth0/queues/rx-0/rps_cpus");
    assert_eq!(u32::from_str_radix(mask().trim(), 16).unwrap(), 0b10);
    let reopened = open(&file.name).unwrap();
    assert_eq!(reopened.file().links[0].mtu, 9000);
    assert_eq!(reopened.file().links[0].ends[1].receive_cores.as_ref(), Some(&cores));
    lab.0.set_receive_cores("there", "eth0", None).unwrap();
    assert_eq!(u32::from_str_radix(mask().trim(), 16).unwrap(), 0);
    for (outcome, expected, kind) in [
        (lab.0.set_mtu(7, 1500), "link 7", FailureKind::Name),
        (lab.0.set_mtu(0, 10), "MTU", FailureKind::Invalid),
        (lab.0.set_receive_cores("gamma", "eth0", None), "here, there", FailureKind::Name),
        (lab.0.set_receive_cores("there", "eth9", None), "eth0", FailureKind::Name),
    ] {
        let error = outcome.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(error.failure_kind(), kind, "{error}");
    }
}

#[test]
fn root_name_in_use_is_rejected() {
    let file = pair("taken", "");
    let lab = Lab::up(&file).unwrap();
    let error = up(&file, keeper()).unwrap_err();
    assert!(matches!(error, LabError::NameTaken { .. }), "{error}");
    assert_eq!(error.failure_kind(), FailureKind::Name);
    assert_eq!(output(&lab.0, "here", "hostname").trim(), "here", "the first one goes on");
}

#[test]
fn root_keeper_outlives_its_shell() {
    let lab = Lab::up(&pair("session", "delay = \"1ms\"")).unwrap();
    let keeper = lab.0.keeper_pid();
    // A session of its own: neither Ctrl-C nor a hangup of the terminal reaches
    // it (credentials(7)); and no descriptor of the terminal is open.
    let stat = fs::read_to_string(format!("/proc/{keeper}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    assert_eq!(fields[3], keeper.to_string(), "session");
    for descriptor in 0..3 {
        let target = fs::read_link(format!("/proc/{keeper}/fd/{descriptor}")).unwrap();
        assert_eq!(target, Path::new("/dev/null"));
    }
}

#[test]
fn root_killed_keeper_leaves_nothing_and_the_next_start_clears_up() {
    let file = pair("killed", "delay = \"1ms\"");
    let lab = Lab::up(&file).unwrap();
    let mut sleep = Command::new("sleep");
    sleep.arg("600");
    let mut left_over = lab.0.command("here", sleep).unwrap().spawn().unwrap();
    let empty = Inside::of(&lab.0, "there");
    let namespace = empty.run(|| fs::read_link("/proc/thread-self/ns/net").unwrap());
    drop(empty);
    assert!(network_namespaces().contains(&namespace));
    let keeper_pid = rustix::process::Pid::from_raw(lab.0.keeper_pid().cast_signed()).unwrap();
    rustix::process::kill_process(keeper_pid, rustix::process::Signal::KILL).unwrap();
    assert!(gone(|| !network_namespaces().contains(&namespace)), "the namespace goes with its keeper");
    // The holders exit first; the lab's lock is released by the keeper's last
    // thread.
    assert!(gone(|| has_ended(keeper_pid)), "the keeper ends");
    assert!(matches!(open(&file.name), Err(LabError::NotRunning { .. })));
    // Processes that a user started inside are ended by the next start of any
    // lab.
    let next = Lab::up(&pair("next", "")).unwrap();
    assert!(gone(|| left_over.try_wait().unwrap().is_some()));
    // By this start, or that of a concurrent test, which may still be in
    // progress.
    assert!(gone(|| !Path::new("/run/clearstream/labs").join(&file.name).exists()));
    let reopened = Lab::up(&file).unwrap();
    assert_eq!(output(&reopened.0, "there", "hostname").trim(), "there");
    drop(next);
}

#[test]
fn root_lab_that_cannot_be_created_leaves_nothing_and_reports_why() {
    let refusals: [(&str, &str, FailureKind); 3] = [
        ("net.core.rmem_max", "whole machine", FailureKind::Invalid),
        ("net.ipv4.no_such_thing", "misspelt", FailureKind::Invalid),
        ("net.ipv4.tcp_rmem", "rejects this value", FailureKind::Invalid),
    ];
    for (key, expected, kind) in refusals {
        let mut file = pair("refused", "");
        file.hosts[1].sysctls.insert(key.to_owned(), "many".to_owned());
        let error = up(&file, keeper()).unwrap_err();
        assert!(error.to_string().contains(expected) && error.to_string().contains("there"), "{error}");
        assert_eq!(error.failure_kind(), kind, "{error}");
        assert!(!Path::new("/run/clearstream/labs").join(&file.name).exists());
    }
    // Only what the machine allows can be selected by sysctl; routes may use
    // any.
    let values = |path: &str| -> Vec<String> {
        let text = fs::read_to_string(Path::new("/proc/sys/net/ipv4").join(path)).unwrap();
        text.split_whitespace().map(str::to_owned).collect()
    };
    let allowed = values("tcp_allowed_congestion_control");
    if let Some(other) =
        values("tcp_available_congestion_control").iter().find(|name| !allowed.contains(name))
    {
        let mut file = pair("refused", "");
        file.hosts[0].sysctls.insert("net.ipv4.tcp_congestion_control".to_owned(), other.clone());
        let error = up(&file, keeper()).unwrap_err();
        assert!(error.to_string().contains(&format!("congestion-control = \"{other}\"")), "{error}");
        file.hosts[0].sysctls.clear();
        file.hosts[0].congestion_control = Some(other.clone());
        drop(Lab::up(&file).unwrap());
    }
    let mut file = pair("refused", "");
    file.hosts[0].congestion_control = Some("no-such-thing".to_owned());
    let error = up(&file, keeper()).unwrap_err();
    assert!(error.to_string().contains("no-such-thing"), "{error}");
    assert!(!Path::new("/run/clearstream/labs").join(format!("{}.lock", file.name)).exists());
}

#[test]
fn root_missing_privilege_is_reported() {
    let folder = std::env::temp_dir().join(format!("clearstream-lab-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    std::os::unix::fs::chown(&folder, Some(65534), Some(65534)).unwrap();
    // The program may be in a directory that other users cannot read.
    let program = folder.join("keep");
    fs::copy(keeper().get_program(), &program).unwrap();
    let mut unprivileged = Command::new(&program);
    unprivileged.uid(65534).gid(65534).env("XDG_RUNTIME_DIR", &folder).current_dir("/");
    let error = up(&pair("nobody", ""), unprivileged).unwrap_err();
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(error.failure_kind(), FailureKind::Unsupported, "{error}");
    assert!(error.to_string().contains("CAP_SYS_ADMIN") && error.to_string().contains("root"), "{error}");
}

#[test]
fn root_invalid_keeper_is_an_error() {
    for program in ["true", "cat"] {
        let error = up(&pair("none", ""), Command::new(program)).unwrap_err();
        // It may have exited before it was written to, or before it was read
        // from.
        assert!(error.to_string().contains("the process that holds"), "{error}");
    }
}

#[test]
fn root_router_forwards_between_its_links() {
    let text = format!(
        r#"schema = "clearstream.lab"
version = 1
name = "routed-{}"
title = "Two hosts and a router"
[[host]]
name = "alpha"
[[host.route]]
to = "10.98.2.0/24"
via = "10.98.1.254"
[[host.route]]
to = "default"
via = "fd98:1::fe"
[[host]]
name = "gate"
router = true
[[host]]
name = "beta"
[[host.route]]
to = "default"
via = "10.98.2.254"
[[host.route]]
to = "default"
via = "fd98:2::fe"
[[link]]
ends = [
  {{ host = "alpha", interface = "eth0", addresses = ["10.98.1.1/24", "fd98:1::1/64"] }},
  {{ host = "gate", interface = "eth0", addresses = ["10.98.1.254/24", "fd98:1::fe/64"] }},
]
[[link]]
delay = "1ms"
ends = [
  {{ host = "gate", interface = "wan0", addresses = ["10.98.2.254/24", "fd98:2::fe/64"] }},
  {{ host = "beta", interface = "wan0", addresses = ["10.98.2.2/24", "fd98:2::2/64"] }},
]
"#,
        std::process::id()
    );
    let lab = Lab::up(&file::parse(Path::new("routed.toml"), &text).unwrap()).unwrap();
    let routes = json(&output(&lab.0, "alpha", "ip -j route show 10.98.2.0/24"));
    assert_eq!(routes[0]["gateway"], "10.98.1.254");
    let (alpha, beta) = (Inside::of(&lab.0, "alpha"), Inside::of(&lab.0, "beta"));
    for (from, to) in [("10.98.1.1:0", "10.98.2.2:0"), ("[fd98:1::1]:0", "[fd98:2::2]:0")] {
        let receiver = beta.run(|| std::net::UdpSocket::bind(to).unwrap());
        let sender = alpha.run(|| std::net::UdpSocket::bind(from).unwrap());
        receiver.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut buffer = [0; 16];
        // The first packets may be lost while neighbours are found.
        let came = (0..50).any(|_| {
            let _ = sender.send_to(b"through", receiver.local_addr().unwrap());
            receiver.recv(&mut buffer).is_ok()
        });
        assert!(came && &buffer[..7] == b"through", "{from} to {to}");
    }
}
