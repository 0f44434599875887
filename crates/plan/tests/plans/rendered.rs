//! Files of the operator's system, each checked by the tool that reads it.

use std::{fs, process::Command};

use clearstream_netconfig::settings::{Format, Rendered, render};
use clearstream_plan::verify;
use clearstream_schema::plan::{LinkAttribute, Plan, Setting, Value};

use crate::{
    common::{plan, step, sysctl},
    kernel::Lab,
};

pub(crate) fn format(name: &str) -> Format {
    name.parse().unwrap()
}

pub(crate) fn ethtool(group: &str, name: &str) -> Setting {
    Setting::Ethtool { interface: "left".to_owned(), group: group.to_owned(), name: name.to_owned() }
}

fn link(attribute: LinkAttribute) -> Setting {
    Setting::Link { interface: "left".to_owned(), attribute }
}

pub(crate) fn sample() -> Plan {
    let rps = Setting::File("sys/class/net/left/queues/rx-0/rps_cpus".to_owned());
    let mut plan = plan(
        "dtn1",
        "6.18.44",
        vec![
            step(sysctl("net.ipv4.tcp_rmem"), "4096 262144 67108864"),
            step(sysctl("net.ipv4.tcp_timestamps"), "0"),
            step(link(LinkAttribute::Mtu), "4000"),
            step(link(LinkAttribute::TransmitQueueLength), "77"),
            step(rps, "1"),
            step(ethtool("features", "rx-gro"), "on"),
            step(
                Setting::Qdisc { interface: "left".to_owned() },
                "tbf rate 1gbit burst 65536b limit 1000000b",
            ),
        ],
    );
    plan.purpose = "40 Gb/s over 17 ms; $(touch /tmp/never) `x`".to_owned();
    plan.steps[0].reason = "rate * rtt = \"85\" MB\n{{ twice }} it".to_owned();
    plan
}

pub(crate) fn text(rendered: &Rendered) -> &str {
    &rendered.files[0].text
}

/// ethtool(8) takes `equal` alone, and without the name of the setting.
#[test]
fn an_indirection_table_is_an_option_of_ethtool() {
    for (value, line) in [("equal 4", Some("ethtool -X 'left' equal 4\n")), ("0*64,1*32", None)] {
        let plan = plan("dtn1", "6.18.44", vec![step(ethtool("rss", "indirection"), value)]);
        let rendered = render(&plan, format("shell"));
        assert_eq!(rendered.left_out.is_empty(), line.is_some(), "{value}");
        assert!(line.is_none_or(|line| text(&rendered).contains(line)), "{}", text(&rendered));
        for format in [format("tuned"), format("networkmanager"), format("networkd")] {
            assert_eq!(render(&plan, format).left_out.len(), 1, "{format:?} {value}");
        }
    }
}

/// Nothing is dropped without being named.
#[test]
fn every_step_is_in_the_file_or_named() {
    let plan = sample();
    for format in Format::all() {
        let rendered = render(&plan, format);
        let all: String = rendered.files.iter().map(|file| file.text.as_str()).collect();
        for left_out in &rendered.left_out {
            assert!(all.contains(&format!("# Not here: {}: ", left_out.setting)), "{format:?}: {left_out:?}");
        }
        for step in &plan.steps {
            let is_named = rendered.left_out.iter().any(|left_out| left_out.setting == step.setting);
            let value = step.desired.as_ref().unwrap().to_string();
            let value = value.split(' ').nth(2).unwrap_or(&value);
            let shown = all.contains(value)
                || all.contains("GenericReceiveOffload=yes")
                || all.contains("feature-rx-gro=true");
            assert!(is_named || shown, "{format:?}: {}", step.setting);
        }
    }
    let htb = Setting::Qdisc { interface: "left".to_owned() };
    let odd =
        crate::common::plan("dtn1", "6.18.44", vec![step(htb, "fq; reboot"), step(sysctl("net.x'y"), "1")]);
    for format in Format::all() {
        let rendered = render(&odd, format);
        assert!(rendered.files.is_empty() && rendered.left_out.len() == 2, "{format:?}");
    }
}

#[test]
fn root_sysctl_reads_the_file() {
    let lab = Lab::new();
    let path = lab.folder.path().join("90.conf");
    fs::write(&path, text(&render(&sample(), format("sysctl")))).unwrap();
    lab.tool(&format!("sysctl -q -p {}", path.display()));
    let shown = lab.tool("sysctl -n net.ipv4.tcp_rmem net.ipv4.tcp_timestamps");
    assert_eq!(shown.split_whitespace().collect::<Vec<_>>(), ["4096", "262144", "67108864", "0"]);
}

#[test]
fn root_the_script_makes_the_plan() {
    let lab = Lab::new();
    lab.tool("ethtool -K left gro off");
    let path = lab.folder.path().join("settings.sh");
    fs::write(&path, text(&render(&sample(), format("shell")))).unwrap();
    let checked = Command::new("shellcheck").arg(&path).output().expect("apt-get install shellcheck");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    lab.tool(&format!("sh {}", path.display()));
    let verification = lab.inside(|options| verify(&sample(), &options)).unwrap();
    assert!(verification.checks.iter().all(|check| check.holds), "{verification:?}");
}

#[test]
fn ansible_reads_the_play() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("play.yml");
    fs::write(&path, text(&render(&sample(), format("ansible")))).unwrap();
    let checked = Command::new("ansible-playbook")
        .args(["--syntax-check", "-i", "localhost,"])
        .arg(&path)
        .env("HOME", folder.path())
        .env("LC_ALL", "C.UTF-8")
        .output()
        .expect("apt-get install ansible-core");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

/// udev in a namespace with its own /run: `udevadm test` carries out what
/// assigns attributes, and prints what it would run.
#[test]
fn root_udev_and_systemd_read_theirs() {
    let lab = Lab::new();
    lab.tool("mount -t tmpfs none /run");
    lab.tool("mkdir -p /run/udev/rules.d /run/systemd/network");
    lab.tool("ip link set left down");
    let put = |text: &str, path: &str| {
        let source = lab.folder.path().join("file");
        fs::write(&source, text).unwrap();
        lab.tool(&format!("cp {} {path}", source.display()));
    };
    put(text(&render(&sample(), "udev".parse().unwrap())), "/run/udev/rules.d/90-clearstream.rules");
    let printed = output_of(&lab, "udevadm test --action=add /sys/class/net/left");
    assert!(!printed.contains("90-clearstream.rules") || !printed.contains("nvalid"), "{printed}");
    assert!(printed.contains("run: '/sbin/ethtool -K left rx-gro on'"), "{printed}");
    assert!(printed.contains("run: '/sbin/tc qdisc replace dev left root tbf rate 1gbit"), "{printed}");
    let shown = lab.tool("ip -o link show left");
    assert!(shown.contains("mtu 4000") && shown.contains("qlen 77"), "{shown}");
    assert_eq!(lab.tool("cat /sys/class/net/left/queues/rx-0/rps_cpus").trim_start_matches('0').trim(), "1");

    let mut other = sample();
    other.steps[2].desired = Some(Value::Number(5000));
    other.steps.push(step(ethtool("coalesce", "rx-usecs"), "3"));
    put(text(&render(&other, format("networkd"))), "/run/systemd/network/10-clearstream-left.link");
    let printed = output_of(&lab, "udevadm test-builtin net_setup_link /sys/class/net/left");
    assert!(!printed.contains("Unknown key") && !printed.contains("Failed to parse"), "{printed}");
    assert!(lab.tool("ip -o link show left").contains("mtu 5000"), "{printed}");
}

fn output_of(lab: &Lab, line: &str) -> String {
    let mut arguments = line.split(' ');
    let mut command = Command::new(arguments.next().unwrap());
    command.args(arguments);
    lab.enter(&mut command);
    let output = command.output().unwrap();
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
