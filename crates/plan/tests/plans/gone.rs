//! What is gone with its interface, queue, interrupt or module counts as restored and is
//! named; what is out of reach for another reason is tried again.

use std::{
    cell::RefCell, fs, path::Path, process::Command, sync::atomic::AtomicBool, thread, time::Duration,
};

use clearstream_plan::{Duty, Permitted, apply, await_confirmation, expire, history, recover, revert};
use clearstream_schema::plan::{Gone, JournalState, LinkAttribute, Setting};
use serde_json::json;

use crate::{
    common::{Tree, plan, run_child, step, sysctl},
    duty::{Piped, begun},
    kernel::Lab,
};

const BYSTANDER: &str = "proc/sys/net/ipv4/tcp_rmem";

/// A setting with its file, what is done to it, and what is gone then.
struct Row {
    setting: Setting,
    file: &'static str,
    undo: fn(&Path),
    gone: Option<&'static str>,
}

fn remove(path: &Path) {
    if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
}

fn rows() -> Vec<Row> {
    let row = |setting, file, undo, gone| Row { setting, file, undo, gone };
    let file = |path: &str| Setting::File(path.to_owned());
    let mtu = || Setting::Link { interface: "eth0".to_owned(), attribute: LinkAttribute::Mtu };
    let (rps, irq) = ("sys/class/net/eth0/queues/rx-0/rps_cpus", "proc/irq/42/smp_affinity_list");
    let module = "sys/module/tcp_x/y";
    let filter = "proc/sys/net/ipv4/conf/eth0/rp_filter";
    vec![
        row(mtu(), "sys/class/net/eth0/mtu", |root| remove(&root.join("sys/class/net/eth0")), Some("eth0")),
        row(file(rps), rps, |root| remove(&root.join("sys/class/net/eth0")), Some("eth0")),
        row(
            file(rps),
            rps,
            |root| remove(&root.join("sys/class/net/eth0/queues/rx-0")),
            Some("queue rx-0 of eth0"),
        ),
        row(
            sysctl("net.ipv4.conf.eth0.rp_filter"),
            filter,
            |root| {
                remove(&root.join("sys/class/net/eth0"));
                remove(&root.join("proc/sys/net/ipv4/conf/eth0"));
            },
            Some("eth0"),
        ),
        // As IPv6 does with an MTU below 1280 bytes: the interface stays.
        row(
            sysctl("net.ipv4.conf.eth0.rp_filter"),
            filter,
            |root| remove(&root.join("proc/sys/net/ipv4/conf/eth0")),
            Some("net.ipv4.conf.eth0.rp_filter"),
        ),
        row(
            sysctl("net.netfilter.nf_conntrack_max"),
            "proc/sys/net/netfilter/nf_conntrack_max",
            |root| remove(&root.join("proc/sys/net/netfilter")),
            Some("net.netfilter.nf_conntrack_max"),
        ),
        row(file(irq), irq, |root| remove(&root.join("proc/irq/42")), Some("interrupt 42")),
        row(
            file(module),
            module,
            |root| {
                fs::create_dir(root.join("sys/module/other")).unwrap();
                remove(&root.join("sys/module/tcp_x"));
            },
            Some("/sys/module/tcp_x/y"),
        ),
        // Out of reach only.
        row(mtu(), "sys/class/net/eth0/mtu", |root| remove(&root.join("sys")), None),
        row(file(rps), rps, |root| remove(&root.join("sys")), None),
        row(file(irq), irq, |root| remove(&root.join("proc/irq")), None),
        // Nothing is mounted on a folder that is empty.
        row(file(module), module, |root| remove(&root.join("sys/module/tcp_x")), None),
        row(
            file(irq),
            irq,
            |root| {
                remove(&root.join("proc/irq/42/smp_affinity_list"));
                fs::create_dir(root.join("proc/irq/42/smp_affinity_list")).unwrap();
            },
            None,
        ),
    ]
}

/// Who restores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Guardian,
    Recover,
    Revert { force: bool },
    Deadline,
}

#[test]
fn what_is_gone_counts_as_restored_and_what_is_out_of_reach_does_not() {
    let ways =
        [By::Guardian, By::Recover, By::Revert { force: false }, By::Revert { force: true }, By::Deadline];
    thread::scope(|scope| {
        for by in ways {
            for (index, row) in rows().into_iter().enumerate() {
                scope.spawn(move || try_out(&row, by, &format!("row {index}, {by:?}")));
            }
        }
    });
}

fn try_out(Row { setting, file, undo, gone }: &Row, by: By, what: &str) {
    let tree = Tree::new();
    fs::create_dir_all(tree.root().join(file).parent().unwrap()).unwrap();
    tree.write(file, "7\n");
    // `sys/class/net` is never empty.
    fs::create_dir_all(tree.root().join("sys/class/net/lo")).unwrap();
    let words = |path: &str| {
        let text = fs::read_to_string(tree.root().join(path)).unwrap();
        text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let before = words(BYSTANDER);
    let last = step(sysctl("net.ipv4.tcp_wmem"), "4096 65536 1");
    let steps = vec![step(sysctl("net.ipv4.tcp_rmem"), "1 2 3"), step(setting.clone(), "9"), last];
    let (plan, options) = (plan("dtn1", "6.18.44-test", steps), tree.options().permitting(Permitted::Any));
    if matches!(by, By::Guardian | By::Recover) {
        // Before its third step.
        assert!(!run_child("apply", Some(&tree.root()), &tree.journals(), &plan, 8, |_| ()), "{what}");
    } else {
        apply(&plan, &options).unwrap();
    }
    let journal = history(&options).unwrap()[0].journal.clone();
    let aside = tree.folder.path().join("aside");
    copy(&tree.root(), &aside);
    undo(&tree.root());
    let restored = match by {
        By::Guardian => by_guardian(&tree, &journal, || {
            fs::remove_dir_all(tree.root()).unwrap();
            copy(&aside, &tree.root());
        }),
        By::Recover => {
            let found = recover(&options).unwrap().remove(0);
            found.problem.map_or(Ok(found.gone), Err)
        }
        By::Revert { force } => {
            revert(&journal, force, &options).map(|done| done.gone).map_err(|error| error.to_string())
        }
        By::Deadline => {
            await_confirmation(&journal, Duration::ZERO, &options).unwrap();
            let done = expire(&journal, &options);
            done.map(|done| done.unwrap().gone).map_err(|error| error.to_string())
        }
    };
    let state = history(&options).unwrap()[0].state;
    match gone {
        Some(gone) => {
            let wanted = Gone { what: (*gone).to_owned(), change_count: 1 };
            assert_eq!(restored, Ok(vec![wanted]), "{what}");
            assert_eq!((words(BYSTANDER), state), (before, JournalState::Reverted), "{what}");
            assert!(recover(&options).unwrap().is_empty(), "{what}");
        }
        // The guardian has tried again, and it was within reach by then.
        None if by == By::Guardian => {
            assert!(restored.is_err() && state == JournalState::Reverted, "{what}");
            assert_eq!((words(BYSTANDER), words(file)), (before, vec!["7".to_owned()]), "{what}");
        }
        None => assert!(restored.is_err() && state != JournalState::Reverted, "{what}: {restored:?}"),
    }
}

/// What a guardian says that went, or its first problem, after which `repair` is called.
fn by_guardian(tree: &Tree, journal: &str, repair: impl Fn()) -> Result<Vec<Gone>, String> {
    let said = RefCell::new(Vec::new());
    let problem = |text: &str| {
        said.borrow_mut().push(text.to_owned());
        if text.contains("not restored yet") {
            repair();
        }
    };
    let lines = vec![begun(tree, journal, &json!("applied"))];
    let told_to_end = AtomicBool::new(false);
    Duty { reports: Piped::new(lines), answer: &|_| (), told_to_end: &told_to_end, problem: &problem }
        .run(&tree.options());
    let said = said.into_inner();
    if let Some(problem) = said.iter().find(|text| text.contains("not restored yet")) {
        return Err(problem.clone());
    }
    let what = |text: &String| {
        let text = text.strip_prefix(&format!("journal {journal}: ")).unwrap();
        let what = text.strip_suffix(" is gone: its change went with it").unwrap();
        Gone { what: what.to_owned(), change_count: 1 }
    };
    Ok(said.iter().map(what).collect())
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-r").args([from, to]).status().unwrap().success());
}

/// Every kind of setting of an interface, which is removed, or called otherwise, while they
/// are changed: what `ip` and `sysctl` show afterwards is as if nothing had been changed.
#[test]
fn root_an_interface_goes_with_its_changes_unless_it_has_another_name() {
    let lab = Lab::new();
    for line in [
        "ip link add other type veth peer name far",
        "ip link set other up",
        "ip link set far up",
        "ip address add 10.7.0.1/24 dev left",
        "ip address add 10.9.0.1/24 dev other",
        "ip nexthop add id 7 via 10.7.0.2 dev left",
        "ip route add 10.20.0.0/24 via 10.7.0.2 dev left proto 117",
        "ip route add 10.21.0.0/24 nhid 7 proto 117",
        "ip route add 10.22.0.0/24 via 10.9.0.2 dev other proto 117",
    ] {
        lab.tool(line);
    }
    let left = || "left".to_owned();
    let route = |third: u8| Setting::Route {
        table: 254,
        destination: format!("10.{third}.0.0/24").parse().unwrap(),
        metric: 0,
    };
    let feature =
        Setting::Ethtool { interface: left(), group: "features".to_owned(), name: "rx-gro".to_owned() };
    let address = Setting::Address { interface: left(), prefix: "10.7.5.1/24".parse().unwrap() };
    let gro = if lab.tool("ethtool -k left").contains("generic-receive-offload: on") { "off" } else { "on" };
    let plan = lab.plan(vec![
        step(sysctl("net.ipv4.tcp_sack"), "0"),
        step(sysctl("net.ipv4.conf.left.rp_filter"), "2"),
        step(sysctl("net.ipv6.neigh.left.gc_stale_time"), "77"),
        step(Setting::Link { interface: left(), attribute: LinkAttribute::Mtu }, "1400"),
        step(Setting::Qdisc { interface: left() }, "pfifo limit 77p"),
        step(Setting::File("sys/class/net/left/queues/rx-0/rps_cpus".to_owned()), "1"),
        step(feature, gro),
        step(address, "proto 117"),
        // From left to other, and the reverse: the first cannot be as before again.
        step(route(20), "via 10.9.0.2 dev other proto 117"),
        step(route(21), "via 10.9.0.2 dev other proto 117"),
        step(route(22), "via 10.7.0.2 dev left proto 117"),
    ]);
    let shown = || (lab.tool("sysctl -n net.ipv4.tcp_sack"), lab.tool("ip route show proto 117"));
    let died = |at| !run_child("apply", None, &lab.journals(), &plan, at, |command| lab.enter(command));
    // Before its last mark: two events of the journal, three of each step.
    let whole = 2 + 3 * plan.steps.len() - 1;
    // Called otherwise it is not gone.
    let before = shown();
    assert!(died(whole));
    lab.tool("ip link set left name renamed");
    let found = lab.inside(|options| recover(&options)).unwrap().remove(0);
    let problem = found.problem.unwrap();
    assert!(problem.contains("left is called renamed now") && found.gone.is_empty(), "{problem}");
    lab.tool("ip link set renamed name left");
    let found = lab.inside(|options| recover(&options)).unwrap().remove(0);
    assert_eq!((found.problem, found.gone), (None, vec![]));
    assert_eq!(shown(), before);
    assert!(died(whole));
    lab.tool("ip link del left");
    let found = lab.inside(|options| recover(&options)).unwrap().remove(0);
    assert_eq!((found.problem, found.now), (None, JournalState::Reverted));
    let gone = |what: &str, change_count| Gone { what: what.to_owned(), change_count };
    assert_eq!(found.gone, [gone("left", 8), gone("nexthop 7", 1)]);
    let left_over = lab.tool("ip route show proto 117");
    assert_eq!(left_over.trim(), "10.22.0.0/24 via 10.9.0.2 dev other", "of the first two nothing stays");
    assert_eq!(lab.tool("sysctl -n net.ipv4.tcp_sack").trim(), "1");
    assert!(lab.inside(|options| recover(&options)).unwrap().is_empty());
}
