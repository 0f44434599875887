//! Files for the daemons that manage a machine, each read by the daemon
//! itself, or by its own client where the daemon would take the machine over.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use clearstream_netconfig::settings::render;
use clearstream_schema::plan::{LinkAttribute, Setting};

use crate::{
    common::{plan, step},
    kernel::Lab,
    rendered::{ethtool, format, sample, text},
};

/// Program that `.ci/install` has put beside the build because its package would
/// start a daemon.
fn beside(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools").join(path)
}

fn nmcli() -> PathBuf {
    let client = beside("network-manager/usr/bin/nmcli");
    if client.is_file() { client } else { PathBuf::from("nmcli") }
}

/// Lines of a keyfile's groups, without what names the profile.
fn keyfile_lines(text: &str) -> Vec<String> {
    let mut group = "";
    let mut lines = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line.starts_with('[') {
            group = line;
        } else if group != "[connection]" {
            lines.push(format!("{group} {line}"));
        }
    }
    lines.sort();
    lines
}

/// NetworkManager's client reads a keyfile as a profile and writes what it
/// understood: what it does not know is missing then.
#[test]
fn networkmanager_keeps_every_line_of_a_keyfile() {
    let link = |attribute| Setting::Link { interface: "left".to_owned(), attribute };
    let plan = plan(
        "dtn1",
        "6.18.44",
        vec![
            step(link(LinkAttribute::Mtu), "4000"),
            step(link(LinkAttribute::TransmitQueueLength), "77"),
            step(ethtool("features", "rx-gro"), "on"),
            step(ethtool("rings", "rx"), "4096"),
            step(ethtool("coalesce", "rx-usecs"), "3"),
            step(ethtool("pause", "rx"), "off"),
            step(Setting::Qdisc { interface: "left".to_owned() }, "fq_codel"),
        ],
    );
    let ours = text(&render(&plan, format("networkmanager"))).to_owned();
    let mut child = Command::new(nmcli())
        .args(["--offline", "connection", "modify", "connection.autoconnect", "yes"])
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("nmcli: run .ci/install test");
    child.stdin.take().unwrap().write_all(ours.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && stderr.is_empty(), "{stderr}");
    let theirs = keyfile_lines(&String::from_utf8(output.stdout).unwrap());
    let lines = keyfile_lines(&ours);
    assert_eq!(lines.len(), plan.steps.len());
    let missing: Vec<String> = lines.into_iter().filter(|line| !theirs.contains(line)).collect();
    // The group [link] came with NetworkManager 1.44, [ethtool] channels with 1.46.
    let version = Command::new(nmcli()).arg("--version").output().unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    let minor: u32 = version.rsplit(' ').next().unwrap().split('.').nth(1).unwrap().parse().unwrap();
    let unknown: &[&str] = if minor < 44 { &["[link] tx-queue-length=77"] } else { &[] };
    assert_eq!(missing, unknown, "{version}: {theirs:?}");
}

/// The daemon itself in a namespace with files of its own: it applies the profile
/// and reverts it when it ends. It tunes no virtual interface, so the test only
/// checks that it knows those options.
#[test]
fn root_tuned_carries_out_its_profile() {
    let lab = Lab::new();
    let profile = text(&render(&sample(), format("tuned"))).to_owned();
    let path = lab.folder.path().join("tuned.conf");
    fs::write(&path, &profile).unwrap();
    let script = format!(
        "set -e\n\
         mount -t tmpfs none /run\n\
         mount -t tmpfs none /etc -o nr_inodes=1000\n\
         mkdir -p /etc/tuned/clearstream /run/tuned /run/log\n\
         cp {package}/etc/tuned/*.conf /etc/tuned/\n\
         cp {profile} /etc/tuned/clearstream/tuned.conf\n\
         mount --bind /run/log /var/log\n\
         PYTHONDONTWRITEBYTECODE=1 PYTHONPATH={package}/usr/lib/python3/dist-packages \
         exec /usr/bin/python3 {package}/usr/sbin/tuned --no-dbus --no-socket --debug --profile clearstream\n",
        package = beside("tuned").display(),
        profile = path.display(),
    );
    let before = lab.tool("sysctl -n net.ipv4.tcp_timestamps net.ipv4.tcp_rmem");
    let log = lab.folder.path().join("log");
    let output = fs::File::create(&log).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
    command.stdin(Stdio::null()).stdout(output.try_clone().unwrap()).stderr(output);
    lab.enter(&mut command);
    let mut daemon = command.spawn().unwrap();
    let log_text = || fs::read_to_string(&log).unwrap_or_default();
    let effective = (0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        lab.tool("cat /sys/class/net/left/queues/rx-0/rps_cpus").trim_start_matches('0').trim() == "1"
    });
    let during = lab.tool("sysctl -n net.ipv4.tcp_timestamps net.ipv4.tcp_rmem");
    rustix::process::kill_process(rustix::process::Pid::from_child(&daemon), rustix::process::Signal::TERM)
        .unwrap();
    daemon.wait().unwrap();
    assert!(effective, "{}", log_text());
    assert_eq!(during.split_whitespace().collect::<Vec<_>>(), ["0", "4096", "262144", "67108864"]);
    assert_eq!(lab.tool("sysctl -n net.ipv4.tcp_timestamps net.ipv4.tcp_rmem"), before);
    assert!(!log_text().contains("Unknown option"), "{}", log_text());
}

/// A bare networkd: private `/run`, and `/sys` read-only, so that it sees no udev.
#[test]
fn root_networkd_sets_the_qdisc_of_a_drop_in() {
    let lab = Lab::new();
    let rendered = render(&sample(), format("networkd"));
    let drop_in = rendered.files.iter().find(|file| file.path.ends_with(".conf")).unwrap();
    let path = lab.folder.path().join("drop-in");
    fs::write(&path, &drop_in.text).unwrap();
    let script = format!(
        "mount -t tmpfs none /run\n\
         mkdir -p /run/systemd/netif /run/systemd/network/left.network.d\n\
         chown systemd-network:systemd-network /run/systemd/netif\n\
         mount -o remount,bind,ro /sys\n\
         printf '[Match]\\nName=left\\n[Network]\\nAddress=10.9.9.1/24\\n' >/run/systemd/network/left.network\n\
         cp {path} /run/systemd/network/left.network.d/50-clearstream-left.conf\n\
         chmod -R a+rX /run/systemd\n\
         /lib/systemd/systemd-networkd </dev/null 2>&1 & networkd=$!\n\
         for try in $(seq 100); do sleep 0.1; tc qdisc show dev left | grep -q tbf && break; done\n\
         tc qdisc show dev left\n\
         kill $networkd; wait $networkd\n",
        path = path.display(),
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &script]).stdin(Stdio::null());
    lab.enter(&mut command);
    let output = command.output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let tbf = shown.lines().find(|line| line.starts_with("qdisc tbf")).unwrap_or_else(|| {
        panic!("{shown}{}", String::from_utf8_lossy(&output.stderr));
    });
    // Networkd counts a burst in microseconds: 125 bytes each at 1 Gb/s.
    let burst = tbf.split_once("burst ").unwrap().1.split('b').next().unwrap();
    assert!(tbf.contains("rate 1Gbit") && burst.parse::<u32>().unwrap().abs_diff(65_536) < 125, "{tbf}");
    assert!(!shown.contains("Unknown key") && !shown.contains("Failed to parse"), "{shown}");
}
