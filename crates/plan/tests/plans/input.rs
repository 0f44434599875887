//! Bad input: one clear message, nothing half applied.

use std::fs;

use crate::common::{Tree, plan, step, sysctl};
use clearstream_plan::{Event, Permitted, PlanError, apply, history, read, recover, revert, verify};
use clearstream_schema::{
    control::FailureKind,
    failure::Classified,
    plan::{JournalState, Setting},
};

fn refused(tree: &Tree, plan: &clearstream_schema::plan::Plan, part: &str) {
    let before = tree.texts();
    let message = apply(plan, &tree.options()).unwrap_err().to_string();
    assert!(message.contains(part) && !message.contains('\n'), "{message}");
    assert_eq!(tree.texts(), before);
    assert!(history(&tree.options()).unwrap().is_empty(), "no journal for what was not begun");
}

#[test]
fn apply_verify_apply_revert() {
    let tree = Tree::new();
    let before = tree.texts();
    let (plan, options) = (tree.plan(), tree.options());
    assert!(verify(&plan, &options).unwrap().checks.iter().all(|check| !check.holds));
    let applied = apply(&plan, &options).unwrap();
    assert_eq!(applied.changed, [0, 1, 2, 3]);
    assert!(verify(&plan, &options).unwrap().checks.iter().all(|check| check.holds));
    assert_eq!(apply(&plan, &options).unwrap().journal, None, "the second time changes nothing");
    let journal = applied.journal.unwrap();
    let entry = &history(&options).unwrap()[0];
    assert_eq!(
        (entry.journal.as_str(), entry.state, entry.here),
        (journal.as_str(), JournalState::Applied, true)
    );
    assert_eq!(revert(&journal, false, &options).unwrap().restored_count, 4);
    assert_eq!(tree.texts(), before);
    assert!(matches!(revert(&journal, false, &options), Err(PlanError::RevertedAlready { .. })));
}

#[test]
fn plans_that_do_not_fit() {
    let tree = Tree::new();
    let steps = tree.plan().steps;
    refused(&tree, &plan("dtn2", "6.18.44-test", steps.clone()), "made for host dtn2 and this is dtn1");
    refused(&tree, &plan("dtn1", "6.12.1", steps.clone()), "made for kernel 6.12.1 and this is 6.18.44-test");
    refused(&tree, &plan("dtn1", "6.18.4", steps.clone()), "made for kernel 6.18.4");
    let mut twice = tree.plan();
    twice.steps.push(steps[0].clone());
    refused(&tree, &twice, "in the plan twice");
    let mut newer = tree.plan();
    newer.version = 2;
    refused(&tree, &newer, "version 2");
    // The last step is the bad one: the others must not have been made.
    for (bad, part) in [
        (step(sysctl("net.ipv4.tcp_low_latency"), "1"), "net.ipv4.tcp_low_latency: not on this host"),
        (step(sysctl("net.ipv4.tcp rmem"), "1"), "not the name of a sysctl"),
        (step(Setting::File("etc/passwd".to_owned()), "x"), "below sys/ and proc/irq/ only"),
        (step(Setting::File("sys/../etc/passwd".to_owned()), "x"), "below sys/ and proc/irq/ only"),
        (step(Setting::File("sys/class/net/eth0/mtu".to_owned()), "1400\n9000"), "a value is one line"),
        (step(Setting::File("sys/class/net/eth0/mtu".to_owned()), "1400\0"), "a value is one line"),
        (step(sysctl("net/../kernel/hostname"), "x"), "not the name of a sysctl"),
        (step(sysctl("kernel/hostname"), "x"), "not a setting that a plan may name"),
        (step(Setting::Qdisc { interface: "eth0".to_owned() }, "fq"), "neither qdiscs nor drivers"),
    ] {
        let mut plan = tree.plan();
        plan.steps.push(bad);
        refused(&tree, &plan, part);
    }
    let mut absent = tree.plan();
    absent.steps[3].desired = None;
    refused(&tree, &absent, "cannot be removed");
    // The suffix of a distribution may be left out.
    apply(&plan("dtn1", "6.18.44", steps), &tree.options()).unwrap();
}

#[test]
fn links_do_not_lead_out() {
    let tree = Tree::new();
    let outside = tree.folder.path().join("outside");
    fs::write(&outside, "kept\n").unwrap();
    std::os::unix::fs::symlink(&outside, tree.root().join("sys/escape")).unwrap();
    let step = step(Setting::File("sys/escape".to_owned()), "gone");
    let plan = plan("dtn1", "6.18.44", vec![step]);
    assert!(apply(&plan, &tree.options()).is_err());
    assert!(apply(&plan, &tree.options().permitting(Permitted::Any)).is_err());
    assert_eq!(fs::read_to_string(&outside).unwrap(), "kept\n");
}

/// A link that the kernel does not make must not turn one setting into another.
#[test]
fn links_do_not_lead_to_another_setting() {
    let tree = Tree::new();
    tree.write("proc/sys/kernel/core_pattern", "core\n");
    fs::remove_file(tree.root().join("proc/sys/net/ipv4/tcp_wmem")).unwrap();
    let link = |from: &str, to: &str| std::os::unix::fs::symlink(to, tree.root().join(from)).unwrap();
    link("proc/sys/net/ipv4/tcp_wmem", "../../kernel/core_pattern");
    link("sys/class/net/eth1", "eth0");
    let bad = plan("dtn1", "6.18.44", vec![step(sysctl("net.ipv4.tcp_wmem"), "|/bin/true")]);
    let message = apply(&bad, &tree.options()).unwrap_err().to_string();
    assert!(message.contains("another place"), "{message}");
    let rps = Setting::File("sys/class/net/eth1/queues/rx-0/rps_cpus".to_owned());
    assert!(apply(&plan("dtn1", "6.18.44", vec![step(rps, "1")]), &tree.options()).is_err());
    assert_eq!(fs::read_to_string(tree.root().join("proc/sys/kernel/core_pattern")).unwrap(), "core\n");
}

/// A setting of no family is refused unless the operator permits it; then the
/// operator can revert its journal, and an agent never.
#[test]
fn settings_outside_of_the_families_are_the_operators() {
    let tree = Tree::new();
    tree.write("proc/sys/kernel/core_pattern", "core\n");
    let key = sysctl("kernel.core_pattern");
    let plan = plan("dtn1", "6.18.44", vec![step(key.clone(), "core.%p")]);
    let now = || fs::read_to_string(tree.root().join("proc/sys/kernel/core_pattern")).unwrap();
    let agent = || tree.options().permitting(Permitted::FamiliesOnly);
    for options in [tree.options(), agent()] {
        let error = apply(&plan, &options).unwrap_err();
        assert!(
            error.to_string().contains("kernel.core_pattern: not a setting that a plan may name"),
            "{error}"
        );
        assert_eq!(error.failure_kind(), FailureKind::Forbidden);
    }
    assert_eq!(now(), "core\n");
    assert!(read(std::slice::from_ref(&key), &agent()).is_err() && verify(&plan, &agent()).is_err());
    let journal = apply(&plan, &tree.options().permitting(Permitted::Any)).unwrap().journal.unwrap();
    assert_eq!(now(), "core.%p\n");
    assert!(revert(&journal, true, &agent()).is_err());
    assert_eq!(now(), "core.%p\n");
    revert(&journal, false, &tree.options()).unwrap();
    assert_eq!(now(), "core\n");
}

#[test]
fn somebody_elses_value_is_kept_unless_forced() {
    let tree = Tree::new();
    let before = tree.texts();
    let journal = apply(&tree.plan(), &tree.options()).unwrap().journal.unwrap();
    tree.write("sys/class/net/eth0/mtu", "4000\n");
    let changed = tree.texts();
    let message = revert(&journal, false, &tree.options()).unwrap_err().to_string();
    assert!(
        message.contains("eth0 mtu is \"4000\", neither \"9000\" (set) nor \"1500\" (before)"),
        "{message}"
    );
    assert_eq!(tree.texts(), changed, "nothing half done");
    assert_eq!(history(&tree.options()).unwrap()[0].state, JournalState::Applied);
    revert(&journal, true, &tree.options()).unwrap();
    assert_eq!(tree.texts(), before);
}

#[test]
fn a_setting_that_vanished_stops_a_revert_unless_its_interface_went() {
    let tree = Tree::new();
    let journal = apply(&tree.plan(), &tree.options()).unwrap().journal.unwrap();
    fs::remove_file(tree.root().join("sys/class/net/eth0/mtu")).unwrap();
    for force in [false, true] {
        let message = revert(&journal, force, &tree.options()).unwrap_err().to_string();
        assert!(message.contains("eth0 mtu: not on this host"), "{message}");
    }
    let values = read(&[sysctl("net.ipv4.tcp_rmem")], &tree.options()).unwrap();
    assert_eq!(values.into_values().map(|it| it.to_string()).collect::<Vec<_>>(), ["4096 131072 134217728"]);
    fs::create_dir(tree.root().join("sys/class/net/lo")).unwrap();
    fs::remove_dir_all(tree.root().join("sys/class/net/eth0")).unwrap();
    let done = revert(&journal, false, &tree.options()).unwrap();
    assert_eq!(
        (done.restored_count, done.gone[0].to_string()),
        (2, "eth0 is gone: its 2 changes went with it".to_owned())
    );
}

#[test]
fn after_a_boot_nothing_is_written() {
    let tree = Tree::new();
    let journal = apply(&tree.plan(), &tree.options()).unwrap().journal.unwrap();
    let after = tree.texts();
    tree.write("proc/sys/kernel/random/boot_id", "another-boot\n");
    let message = revert(&journal, true, &tree.options()).unwrap_err().to_string();
    assert!(message.contains("booted since"), "{message}");
    assert_eq!(history(&tree.options()).unwrap()[0].state, JournalState::Gone);
    assert!(recover(&tree.options()).unwrap().is_empty());
    assert_eq!(tree.texts()["sys/class/net/eth0/mtu"], after["sys/class/net/eth0/mtu"]);
}

#[test]
fn damaged_journals_are_named() {
    let tree = Tree::new();
    fs::create_dir_all(tree.journals()).unwrap();
    fs::write(tree.journals().join("garbage.jsonl"), [0xff, b'\n', 1]).unwrap();
    fs::write(tree.journals().join("other.jsonl"), "{\"schema\":\"something\"}\n").unwrap();
    let all = history(&tree.options()).unwrap();
    assert!(all.iter().all(|entry| entry.state == JournalState::Unreadable && entry.note.is_some()));
    for (name, part) in
        [("garbage", "line 1"), ("other", "line 1"), ("none", "no journal \"none\""), ("../x", "no journal")]
    {
        let message = revert(name, true, &tree.options()).unwrap_err().to_string();
        assert!(message.contains(part) && !message.contains('\n'), "{message}");
    }
    assert_eq!(recover(&tree.options()).unwrap().iter().filter(|entry| entry.problem.is_some()).count(), 2);
    // They do not stop the host from being changed.
    let journal = apply(&tree.plan(), &tree.options()).unwrap().journal.unwrap();
    let path = tree.journals().join(format!("{journal}.jsonl"));
    let mut text = fs::read_to_string(&path).unwrap();
    text.push_str("{\"writing\":77}\n");
    fs::write(&path, text).unwrap();
    let message = revert(&journal, false, &tree.options()).unwrap_err().to_string();
    assert!(message.contains("there is no change 77"), "{message}");
}

#[test]
fn one_at_a_time() {
    let tree = Tree::new();
    let inner = std::sync::Arc::new((tree.options(), tree.plan()));
    let outer = tree.options().on_event(move |event| {
        if matches!(event, Event::Journaled { .. }) {
            let refused = apply(&inner.1, &inner.0);
            let refused = refused.unwrap_err();
            assert!(matches!(refused, PlanError::Busy { .. }), "{refused:?}");
            assert!(refused.to_string().starts_with(&format!("process {}", std::process::id())), "{refused}");
            assert!(matches!(recover(&inner.0), Err(PlanError::Busy { .. })));
        }
    });
    apply(&tree.plan(), &outer).unwrap();
}
