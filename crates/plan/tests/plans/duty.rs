//! The guardian process: what is not kept is restored, whatever became of the
//! command, of the journals, and of whoever holds their lock.

use std::{
    fs::{self, File},
    io::{self, Read},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use clearstream_plan::{Guarded, PlanError, confirm_newest, history, recover, revert};
use clearstream_schema::plan::JournalState;
use rustix::{
    fs::{FlockOperation, flock},
    process::{Pid, Signal, kill_process},
};

use crate::{
    common::{Tree, child_command, run_child},
    guard::Scripted,
};

const LONG: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_millis(300);
/// A guardian ends within this time, also on a machine that does something else.
const PATIENCE: Duration = Duration::from_secs(60);

fn guarded(tree: &Tree, within: Duration) -> Guarded {
    Guarded::new(Scripted::default(), guardian(tree)).confirmed_within(Some(within))
}

/// This test program as the guardian of a tree.
pub(crate) fn guardian(tree: &Tree) -> impl Fn() -> io::Result<Command> + 'static {
    let (root, journals, plan) = (tree.root(), tree.journals(), tree.plan());
    move || Ok(child_command("guard", Some(&root), &journals, &plan, usize::MAX))
}

/// Guardians of a tree that run.
pub(crate) fn guardians(tree: &Tree) -> Vec<Pid> {
    let wanted = [format!("PLAN_TEST_ROOT={}", tree.root().display()), "PLAN_TEST_ACTION=guard".to_owned()];
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let has =
                |entry: &String| environment.split(|&byte| byte == 0).any(|found| found == entry.as_bytes());
            wanted.iter().all(has)
        })
        .filter_map(Pid::from_raw)
        .collect()
}

/// The first line that a guardian reads, for a journal that is there.
pub(crate) fn begun(tree: &Tree, journal: &str, kind: &serde_json::Value) -> String {
    let text = fs::read_to_string(tree.journals().join(format!("{journal}.jsonl"))).unwrap();
    let head: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    serde_json::json!({"begun": {"journal": journal, "head": head, "kind": kind}}).to_string()
}

/// Lines as they come from a pipe: a read waits for the next one.
pub(crate) struct Piped<I> {
    lines: I,
    rest: Vec<u8>,
}

impl<I: Iterator<Item = String>> Piped<I> {
    pub(crate) fn new(lines: impl IntoIterator<IntoIter = I>) -> Self {
        Self { lines: lines.into_iter(), rest: Vec::new() }
    }
}

impl<I: Iterator<Item = String>> Read for Piped<I> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.rest.is_empty()
            && let Some(line) = self.lines.next()
        {
            self.rest = (line + "\n").into_bytes();
        }
        let count = self.rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.rest[..count]);
        self.rest.drain(..count);
        Ok(count)
    }
}

pub(crate) fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// What becomes of the journals while a change waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Journals {
    Stay,
    Gone,
    Moved,
    /// The journal is cut to nothing.
    Cut,
    /// All but the journals was removed, as `rm -r` does for a moment.
    Alone,
    /// Another process holds their lock for ever.
    Held,
}

/// Why a change ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Nobody confirms it.
    Deadline,
    /// Its guardian is told to end long before the deadline.
    Told,
    /// The command was killed half-way.
    Killed,
}

#[test]
fn what_is_not_kept_is_restored_whatever_became_of_the_journals() {
    let all =
        [Journals::Stay, Journals::Gone, Journals::Moved, Journals::Cut, Journals::Alone, Journals::Held];
    thread::scope(|scope| {
        for journals in all {
            for end in [End::Deadline, End::Told, End::Killed] {
                scope.spawn(move || is_restored(journals, end));
            }
        }
    });
}

fn is_restored(journals: Journals, end: End) {
    let what = format!("journals {journals:?}, {end:?}");
    let tree = Tree::new();
    let before = tree.texts();
    // With the guardian stopped the journals change before it acts.
    let stopped =
        |signal| guardians(&tree).into_iter().for_each(|pid| kill_process(pid, signal).unwrap_or(()));
    if end == End::Killed {
        assert!(
            !run_child("guarded", Some(&tree.root()), &tree.journals(), &tree.plan(), 7, |_| ()),
            "{what}"
        );
    } else {
        let within = if end == End::Told { LONG } else { SOON };
        guarded(&tree, within).apply(&tree.plan(), &tree.options()).unwrap();
    }
    stopped(Signal::STOP);
    let journal = history(&tree.options()).unwrap().pop().unwrap().journal;
    let mut held = None;
    match journals {
        Journals::Stay => {}
        Journals::Gone => fs::remove_dir_all(tree.journals()).unwrap(),
        Journals::Moved => fs::rename(tree.journals(), tree.root().join("elsewhere")).unwrap(),
        Journals::Cut => fs::write(tree.journals().join(format!("{journal}.jsonl")), "").unwrap(),
        Journals::Alone => {
            let others = fs::read_dir(tree.journals()).unwrap().map(|entry| entry.unwrap().path());
            let others = others.filter(|path| path.extension().is_none_or(|end| end != "jsonl"));
            others.for_each(|path| fs::remove_file(path).unwrap());
        }
        Journals::Held => {
            let folder = File::open(tree.journals()).unwrap();
            // The guardian of a command that was killed may have it already, and is stopped.
            held = flock(&folder, FlockOperation::NonBlockingLockExclusive).ok().map(|()| folder);
        }
    }
    if end == End::Told {
        stopped(Signal::TERM);
    }
    stopped(Signal::CONT);
    eventually(&format!("{what}: not restored"), || tree.texts() == before);
    drop(held);
    // It would go on to mark what can be marked.
    match journals {
        Journals::Stay | Journals::Alone | Journals::Held => {
            eventually(&format!("{what}: not marked"), || {
                history(&tree.options()).unwrap()[0].state == JournalState::Reverted
            });
            assert!(recover(&tree.options()).unwrap().is_empty(), "{what}");
        }
        Journals::Cut => stopped(Signal::KILL),
        Journals::Gone | Journals::Moved => {}
    }
    eventually(&format!("{what}: the guardian stays"), || guardians(&tree).is_empty());
}

#[test]
fn what_is_kept_stays_and_its_guardian_ends() {
    let tree = Tree::new();
    let before = tree.texts();
    let journal = guarded(&tree, LONG).apply(&tree.plan(), &tree.options()).unwrap().journal.unwrap();
    let after = tree.texts();
    assert_eq!(guardians(&tree).len(), 1);
    assert_eq!(confirm_newest(&tree.options()).unwrap().unmarked, None);
    eventually("the guardian stays", || guardians(&tree).is_empty());
    assert_eq!(tree.texts(), after);
    revert(&journal, false, &tree.options()).unwrap();
    assert_eq!(tree.texts(), before);
}

/// The time to confirm a change counts from its end, however long it takes.
#[test]
fn what_takes_longer_to_apply_than_to_confirm_is_not_restored_meanwhile() {
    let within = Duration::from_millis(1500);
    let tree = Tree::new();
    let before = tree.texts();
    let is_first = std::sync::atomic::AtomicBool::new(true);
    let options = tree.options().on_event(move |event| {
        let is_written = matches!(event, clearstream_plan::Event::Written { .. });
        if is_written && is_first.swap(false, std::sync::atomic::Ordering::Relaxed) {
            thread::sleep(within * 2);
        }
    });
    guarded(&tree, within).apply(&tree.plan(), &options).unwrap();
    assert_ne!(tree.texts(), before, "restored before its time");
    eventually("not restored", || tree.texts() == before);
    eventually("the guardian stays", || guardians(&tree).is_empty());
}

/// What others wrote after a command was killed is left to the operator, as `recover` leaves it.
#[test]
fn what_others_wrote_is_not_overwritten_for_a_command_that_was_killed() {
    let tree = Tree::new();
    assert!(!run_child("guarded", Some(&tree.root()), &tree.journals(), &tree.plan(), 7, |_| ()));
    tree.write("proc/sys/net/ipv4/tcp_rmem", "1 2 3\n");
    eventually("the guardian stays", || guardians(&tree).is_empty());
    assert_eq!(tree.texts()["proc/sys/net/ipv4/tcp_rmem"], "1 2 3");
}

/// The guardian restored what a command that was stopped had begun: the command does
/// not go on with it.
#[test]
fn a_command_does_not_go_on_with_what_its_guardian_has_restored() {
    let tree = Tree::new();
    let before = tree.texts();
    let (root, journals) = (tree.root(), tree.journals());
    let options = tree.options().on_event(move |event| {
        // As if it had been stopped before its third step.
        if event
            == (clearstream_plan::Event::ReadBack { setting: &crate::common::sysctl("net.ipv4.tcp_wmem") })
        {
            let other = clearstream_plan::Options::new(clearstream_plan::Host::directory(&root), &journals);
            let journal = history(&other).unwrap()[0].journal.clone();
            let mark = "{\"reverting\":{\"force\":true}}\n\"reverted\"\n";
            let path = journals.join(format!("{journal}.jsonl"));
            io::Write::write_all(
                &mut fs::OpenOptions::new().append(true).open(path).unwrap(),
                mark.as_bytes(),
            )
            .unwrap();
        }
    });
    let error = clearstream_plan::apply(&tree.plan(), &options).unwrap_err();
    assert!(matches!(error, PlanError::JournalFailed { .. }), "{error}");
    assert_eq!(tree.texts(), before);
}

/// The order of journals is that of their numbers: a clock may be set back.
#[test]
fn journals_are_numbered() {
    let tree = Tree::new();
    let names: Vec<String> = (0..3)
        .map(|_| {
            let journal = clearstream_plan::apply(&tree.plan(), &tree.options()).unwrap().journal.unwrap();
            // As a clock that runs back names them.
            revert(&journal, false, &tree.options()).unwrap();
            journal
        })
        .collect();
    let numbers: Vec<&str> = names.iter().map(|name| name.split_once('-').unwrap().0).collect();
    assert_eq!(numbers, ["000001", "000002", "000003"]);
    let rename = |from: &str, to: &str| {
        fs::rename(
            tree.journals().join(format!("{from}.jsonl")),
            tree.journals().join(format!("{to}.jsonl")),
        )
        .unwrap();
    };
    rename(&names[0], "000001-20990101T000000Z");
    rename(&names[2], "1000000-19700101T000000Z");
    let found: Vec<String> =
        history(&tree.options()).unwrap().into_iter().map(|entry| entry.journal).collect();
    assert_eq!(found, ["000001-20990101T000000Z", &names[1], "1000000-19700101T000000Z"]);
    let next = clearstream_plan::apply(&tree.plan(), &tree.options()).unwrap().journal.unwrap();
    assert!(next.starts_with("1000001-"), "{next}");
}
