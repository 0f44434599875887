//! On the kernel, in namespaces of their own: what `sysctl`, `ip`, `tc` and
//! `ethtool` show is what counts.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use clearstream_netlink::RouteSocket;
use clearstream_plan::{Host, Options, PlanError, apply, read, recover, revert, verify};
use clearstream_schema::plan::{LinkAttribute, Plan, Setting, Value};
use clearstream_sys::mount;
use clearstream_testkit::namespace;

use crate::common::{child_command, plan, run_child, step, sysctl};

/// A host with an interface `left` whose other end is `right`.
pub(crate) struct Lab {
    inside: namespace::Host,
    pub(crate) folder: tempfile::TempDir,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let inside = namespace::Host::new();
        inside.run(|| {
            mount::make_private().unwrap();
            mount::fresh_sysfs().unwrap();
        });
        let lab = Self { inside, folder: tempfile::tempdir().unwrap() };
        lab.tool("ip link add left numrxqueues 2 numtxqueues 2 type veth peer name right");
        lab.tool("ip link set left up");
        lab.tool("ip link set right up");
        lab.tool("ip link set lo up");
        lab
    }

    pub(crate) fn journals(&self) -> std::path::PathBuf {
        self.folder.path().join("plans")
    }

    fn options(&self) -> Options {
        Options::new(Host::live(), self.journals())
    }

    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce(Options) -> T + Send) -> T {
        let options = self.options();
        self.inside.run(|| work(options))
    }

    pub(crate) fn enter(&self, command: &mut Command) {
        self.inside.enter(command);
    }

    pub(crate) fn tool(&self, line: &str) -> String {
        self.inside.tool(line)
    }

    pub(crate) fn plan(&self, steps: Vec<clearstream_schema::plan::Step>) -> Plan {
        let identity = self.inside(|options| options.target.identity()).unwrap();
        plan(&identity.name, &identity.kernel, steps)
    }

    /// Everything that the plan of these tests touches, as printed by the tools.
    fn shown(&self) -> [String; 4] {
        let ports = self.tool("ip -o link show left");
        // Counters of the qdisc are not part of the setting, nor is its handle.
        let qdisc = self.tool("tc qdisc show dev left");
        let qdisc = qdisc.split(' ').enumerate().filter(|(at, _)| *at != 2).map(|(_, field)| field);
        [
            self.tool("sysctl net.ipv4.tcp_rmem net.ipv4.tcp_timestamps net.ipv4.tcp_congestion_control"),
            ports.split_whitespace().skip_while(|field| *field != "mtu").collect::<Vec<_>>().join(" "),
            qdisc.collect::<Vec<_>>().join(" "),
            self.tool("ethtool -k left"),
        ]
    }

    fn usual(&self) -> Plan {
        let left = || "left".to_owned();
        let gro =
            Setting::Ethtool { interface: left(), group: "features".to_owned(), name: "rx-gro".to_owned() };
        self.plan(vec![
            step(sysctl("net.ipv4.tcp_rmem"), "4096 262144 67108864"),
            step(sysctl("net.ipv4.tcp_timestamps"), "0"),
            step(sysctl("net.ipv4.tcp_congestion_control"), "reno"),
            step(Setting::Link { interface: left(), attribute: LinkAttribute::Mtu }, "9000"),
            step(Setting::Link { interface: left(), attribute: LinkAttribute::TransmitQueueLength }, "2000"),
            step(Setting::Qdisc { interface: left() }, "tbf rate 1gbit burst 64kb limit 1mb"),
            step(gro, "on"),
        ])
    }
}

#[test]
fn root_every_kind_of_setting_is_what_the_tools_show() {
    let lab = Lab::new();
    lab.tool("ethtool -K left gro off");
    let plan = lab.usual();
    let before = lab.shown();
    let journal = lab.inside(|options| apply(&plan, &options)).unwrap().journal.unwrap();
    assert_eq!(
        lab.tool("sysctl -n net.ipv4.tcp_rmem").split_whitespace().collect::<Vec<_>>(),
        ["4096", "262144", "67108864"]
    );
    let [sysctls, link, qdisc, features] = lab.shown();
    assert!(sysctls.contains("tcp_timestamps = 0") && sysctls.contains("tcp_congestion_control = reno"));
    assert!(link.starts_with("mtu 9000 qdisc tbf") && link.contains("qlen 2000"), "{link}");
    assert!(qdisc.contains("tbf") && qdisc.contains("rate 1Gbit burst 65"), "{qdisc}");
    assert!(features.contains("generic-receive-offload: on"));
    let verification = lab.inside(|options| verify(&plan, &options)).unwrap();
    let bad: Vec<_> = verification.checks.iter().filter(|check| !check.holds).collect();
    assert!(bad.is_empty(), "{bad:?}");
    // Of the sockets: buffer, window scale, timestamps, congestion control.
    assert_eq!(verification.checks.len(), plan.steps.len() + 4);
    assert_eq!(lab.inside(|options| apply(&plan, &options)).unwrap().journal, None);
    lab.inside(|options| revert(&journal, false, &options)).unwrap();
    assert_eq!(lab.shown(), before);
}

/// `ss` is the oracle of what a connection negotiated; here the kernel's own values
/// are compared with a plan that is not effective.
#[test]
fn root_verify_sees_what_is_not_in_effect() {
    let lab = Lab::new();
    let steps = ["net.ipv4.tcp_timestamps", "net.ipv4.tcp_sack", "net.ipv4.tcp_window_scaling"];
    let plan = lab.plan(steps.map(|key| step(sysctl(key), "0")).to_vec());
    let verification = lab.inside(|options| verify(&plan, &options)).unwrap();
    assert!(verification.checks.iter().all(|check| !check.holds), "{verification:?}");
    lab.inside(|options| apply(&plan, &options)).unwrap();
    let verification = lab.inside(|options| verify(&plan, &options)).unwrap();
    assert!(verification.checks.iter().all(|check| check.holds), "{verification:?}");
    lab.tool("ip link set lo down");
    let verification = lab.inside(|options| verify(&plan, &options)).unwrap();
    let unseen: Vec<_> = verification.checks.iter().filter(|check| check.found.is_none()).collect();
    assert!(unseen.len() == 4 && unseen.iter().all(|check| check.note.as_ref().unwrap().contains("lo")));
}

#[test]
fn root_values_the_kernel_does_not_accept_are_restored() {
    let lab = Lab::new();
    let (rmem, before) = (step(sysctl("net.ipv4.tcp_rmem"), "4096 262144 67108864"), lab.shown());
    let clipped = Setting::File("sys/class/net/left/queues/rx-0/rps_flow_cnt".to_owned());
    let left = || "left".to_owned();
    let channels = |value: &str| {
        let (group, name) = ("channels".to_owned(), "rx".to_owned());
        step(Setting::Ethtool { interface: left(), group, name }, value)
    };
    for (bad, parts) in [
        (step(sysctl("net.ipv4.tcp_congestion_control"), "nonesuch"), ["rejects", "nonesuch"]),
        // The kernel rounds up to a power of two (store_rps_dev_flow_table_cnt).
        (step(clipped, "1000"), ["took \"1000\"", "1024"]),
        (
            step(Setting::Link { interface: left(), attribute: LinkAttribute::Mtu }, "3"),
            ["rejects \"3\"", "minimum"],
        ),
        (
            step(Setting::Qdisc { interface: left() }, "tbf rate 1gbit burst 1b limit 1b"),
            ["step 2 failed", "tbf"],
        ),
        // Error message of the kernel (net/ethtool/channels.c).
        (channels("77"), ["channels refused", "requested channel count exceeds maximum"]),
    ] {
        let plan = lab.plan(vec![rmem.clone(), bad]);
        let error = lab.inside(|options| apply(&plan, &options)).unwrap_err();
        let message = error.to_string();
        assert!(matches!(error, PlanError::StepFailed { step: 2, .. }), "{message}");
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        assert_eq!(lab.shown(), before, "{message}");
    }
    // Channels that there are can be set, and ethtool shows them.
    let plan = lab.plan(vec![channels("1")]);
    let journal = lab.inside(|options| apply(&plan, &options)).unwrap().journal.unwrap();
    let shown = |lab: &Lab| {
        lab.tool("ethtool -l left").lines().rfind(|line| line.starts_with("RX:")).map(str::to_owned)
    };
    assert!(shown(&lab).unwrap().ends_with('1'));
    lab.inside(|options| revert(&journal, false, &options)).unwrap();
    assert!(shown(&lab).unwrap().ends_with('2'));
}

#[test]
fn root_read_only_sysctls_are_one_clear_error() {
    let lab = Lab::new();
    lab.tool("mount --bind /proc/sys /proc/sys");
    lab.tool("mount -o remount,bind,ro /proc/sys");
    let (plan, before) = (lab.usual(), lab.shown());
    let message = lab.inside(|options| apply(&plan, &options)).unwrap_err().to_string();
    assert!(message.starts_with("nothing was changed: net.ipv4.tcp_rmem: read-only here"), "{message}");
    assert_eq!(lab.shown(), before);
}

#[test]
fn root_a_labs_journal_is_not_for_another_namespace() {
    let (lab, other) = (Lab::new(), Lab::new());
    let plan = lab.usual();
    let journal = lab.inside(|options| apply(&plan, &options)).unwrap().journal.unwrap();
    let (folder, before) = (lab.journals(), other.shown());
    let elsewhere = || Options::new(Host::live(), &folder);
    let refused = other.inside(|_| revert(&journal, true, &elsewhere()));
    assert!(matches!(refused, Err(PlanError::Elsewhere { .. })), "{refused:?}");
    assert_eq!(other.shown(), before);
    // An interrupted one neither.
    lab.inside(|options| revert(&journal, false, &options)).unwrap();
    assert!(!run_child("apply", None, &folder, &lab.usual(), 4, |command| lab.enter(command)));
    assert!(other.inside(|_| recover(&elsewhere())).unwrap().is_empty());
}

#[test]
fn root_killed_at_every_moment_on_the_kernel() {
    let lab = Lab::new();
    lab.tool("ethtool -K left gro off");
    let (plan, before) = (lab.usual(), lab.shown());
    let dies = |action: &str, at: usize| {
        !run_child(action, None, &lab.journals(), &plan, at, |command| lab.enter(command))
    };
    let mut moments = 0;
    while dies("apply", moments) {
        let recovered = lab.inside(|options| recover(&options)).unwrap();
        assert!(recovered.iter().all(|entry| entry.problem.is_none()), "{recovered:?}");
        let last = lab.inside(|options| clearstream_plan::history(&options)).unwrap().pop();
        if last.as_ref().is_some_and(|entry| entry.state == clearstream_schema::plan::JournalState::Applied) {
            lab.inside(|options| revert(&last.unwrap().journal, false, &options)).unwrap();
        }
        assert_eq!(lab.shown(), before, "moment {moments}");
        moments += 1;
    }
    assert_eq!(moments, 2 + 3 * plan.steps.len() + 1);
    let after = lab.shown();
    assert_ne!(after, before);
    let mut moments = 0;
    loop {
        let journal =
            lab.inside(|options| clearstream_plan::history(&options)).unwrap().pop().unwrap().journal;
        if !dies(&journal, moments) {
            break;
        }
        lab.inside(|options| recover(&options)).unwrap();
        assert_eq!(lab.shown(), before, "moment {moments}");
        lab.inside(|options| apply(&plan, &options)).unwrap();
        moments += 1;
    }
    assert_eq!(lab.shown(), before);
}

/// Killed from outside at no chosen moment.
#[test]
fn root_killed_from_outside() {
    let lab = Lab::new();
    let (plan, before) = (lab.usual(), lab.shown());
    for attempt in 0..12u64 {
        let mut command = child_command("apply", None, &lab.journals(), &plan, usize::MAX);
        lab.enter(&mut command);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(1500 * attempt));
        child.kill().unwrap();
        child.wait().unwrap();
        let recovered = lab.inside(|options| recover(&options)).unwrap();
        assert!(recovered.iter().all(|entry| entry.problem.is_none()), "{recovered:?}");
        let journals = lab.inside(|options| clearstream_plan::history(&options)).unwrap();
        if let Some(entry) = journals.last()
            && entry.state == clearstream_schema::plan::JournalState::Applied
        {
            let verification = lab.inside(|options| verify(&plan, &options)).unwrap();
            assert!(verification.checks.iter().all(|check| check.holds), "{verification:?}");
            lab.inside(|options| revert(&entry.journal, false, &options)).unwrap();
        }
        assert_eq!(lab.shown(), before, "attempt {attempt}");
    }
}

/// Texts that tc makes of qdiscs are read as the same disciplines.
#[test]
fn root_qdiscs_are_what_tc_sets() {
    let lab = Lab::new();
    let qdisc = Setting::Qdisc { interface: "left".to_owned() };
    let live = || {
        lab.inside(|options| read(std::slice::from_ref(&qdisc), &options)).unwrap().remove(&qdisc).unwrap()
    };
    let default = Value::Text("default noqueue".to_owned());
    assert_eq!(live(), default);
    for text in [
        "pfifo limit 123",
        "bfifo limit 65536b",
        "pfifo_fast",
        "tbf rate 40gbit burst 131072b limit 1000000b",
    ] {
        lab.tool(&format!("tc qdisc replace dev left root {text}"));
        let found = live();
        assert!(clearstream_plan::same(&qdisc, &Value::Text(text.to_owned()), &found), "{text}: {found}");
        lab.inside(|options| options.target.write(&qdisc, &found)).unwrap();
        assert!(clearstream_plan::same(&qdisc, &found, &live()), "{found}");
        lab.inside(|options| options.target.write(&qdisc, &default)).unwrap();
        assert_eq!(live(), default);
    }
    // One that cannot be recreated from its text is not replaced.
    lab.tool("tc qdisc replace dev left root handle 1: htb default 1");
    let plan = lab.plan(vec![step(qdisc.clone(), "pfifo limit 10p")]);
    let message = lab.inside(|options| apply(&plan, &options)).unwrap_err().to_string();
    assert!(message.contains("nothing was changed") && message.contains("htb"), "{message}");
    assert!(lab.inside(|_| RouteSocket::open().unwrap().discipline("left")).unwrap().text == "htb");
}
