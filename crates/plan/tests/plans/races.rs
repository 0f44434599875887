//! A guardian and a command, or a person, that come to the same change at the same moment:
//! one of them wins, and nobody is told what the other has undone.

use std::{
    cell::RefCell,
    fs, iter,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use clearstream_plan::{
    Duty, Event, Guarded, PlanError, Test, apply, await_confirmation, begin_test, confirm_newest, history,
};
use clearstream_schema::plan::JournalState;
use rustix::process::{Signal, kill_process};
use serde_json::json;

use crate::{
    common::Tree,
    duty::{Piped, begun, eventually, guardian, guardians},
    guard::Scripted,
};

const LONG: Duration = Duration::from_secs(3600);

/// How a change is kept that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// By a confirmation, while a guardian that is told to end has decided to restore.
    Confirmed,
    /// By a confirmation that began in time and takes the deadline away when it has passed.
    ConfirmedLate,
    /// By a tester, while a guardian that is told to end has decided to restore.
    Tested,
}

/// What is kept between the decision of a guardian and its lock stays.
#[test]
fn what_is_kept_before_the_guardian_has_the_lock_is_not_restored() {
    for kept in [Kept::Confirmed, Kept::ConfirmedLate, Kept::Tested] {
        let tree = Tree::new();
        let test = Mutex::new(None::<Test>);
        let journal = apply(&tree.plan(), &tree.options()).unwrap().journal.unwrap();
        let after = tree.texts();
        let file = |extension: &str| tree.journals().join(format!("{journal}.{extension}"));
        let kind = if kept == Kept::Tested {
            *test.lock().unwrap() = Some(begin_test(&journal, &tree.options()).unwrap());
            json!("tested")
        } else {
            let within = if kept == Kept::Confirmed { LONG } else { Duration::ZERO };
            await_confirmation(&journal, within, &tree.options()).unwrap();
            let deadline = fs::read_to_string(file("trial")).unwrap();
            json!({"confirmed": serde_json::from_str::<serde_json::Value>(&deadline).unwrap()})
        };
        let (sender, lines) = mpsc::channel();
        sender.send(begun(&tree, &journal, &kind)).unwrap();
        let decisions = Arc::new(AtomicUsize::new(0));
        let (options, count) = (tree.options(), Arc::clone(&decisions));
        let (trial, test) = (file("trial"), Arc::new(test));
        let watched = tree.options().on_event(move |event| {
            if event != Event::Due || count.fetch_add(1, Ordering::Relaxed) > 0 {
                return;
            }
            match kept {
                Kept::Confirmed => assert!(confirm_newest(&options).unwrap().unmarked.is_none()),
                Kept::ConfirmedLate => fs::rename(&trial, trial.with_extension("kept")).unwrap(),
                Kept::Tested => test.lock().unwrap().take().unwrap().keep(&options).unwrap(),
            }
        });
        let told_to_end = AtomicBool::new(true);
        let problem = |text: &str| panic!("{kept:?}: {text}");
        Duty { reports: Piped::new(lines), answer: &|_| (), told_to_end: &told_to_end, problem: &problem }
            .run(&watched);
        assert_eq!(decisions.load(Ordering::Relaxed), 1, "{kept:?}");
        assert_eq!(tree.texts(), after, "{kept:?}");
        assert_eq!(history(&tree.options()).unwrap()[0].state, JournalState::Applied, "{kept:?}");
    }
}

/// A command that took longer than the time to confirm: its guardian knows the new deadline
/// before the file has it, and goes by the later one.
#[test]
fn a_deadline_that_is_extended_counts_before_it_is_in_the_file() {
    let tree = Tree::new();
    let journal = apply(&tree.plan(), &tree.options()).unwrap().journal.unwrap();
    await_confirmation(&journal, Duration::ZERO, &tree.options()).unwrap();
    let passed = json!({"confirmed": {"at_ns": 1, "within_ns": 1}});
    let waits = json!({"waits": {"at_ns": u64::MAX, "within_ns": 1}}).to_string();
    let (sender, lines) = mpsc::channel();
    sender.send(begun(&tree, &journal, &passed)).unwrap();
    let sender = RefCell::new(Some(sender));
    let answer = |_: &str| sender.take().unwrap().send(waits.clone()).unwrap();
    let told_to_end = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&told_to_end);
    // After both, so that the guardian ends.
    let last = iter::once_with(move || {
        told.store(true, Ordering::Relaxed);
        String::new()
    });
    let problem = |text: &str| panic!("{text}");
    Duty {
        reports: Piped::new(lines.into_iter().chain(last)),
        answer: &answer,
        told_to_end: &told_to_end,
        problem: &problem,
    }
    .run(&tree.options());
    let entry = history(&tree.options()).unwrap().remove(0);
    assert_eq!(entry.note.as_deref(), Some("its guardian was told to end"));
}

/// A command whose guardian was told to end after the last setting and before the result
/// was said: it does not say that the change is applied.
#[test]
fn a_command_does_not_say_applied_when_its_guardian_has_restored() {
    let tree = std::rc::Rc::new(Tree::new());
    let before = tree.texts();
    let inner = std::rc::Rc::clone(&tree);
    let guard = Scripted::when_checked(move || {
        guardians(&inner).into_iter().for_each(|pid| kill_process(pid, Signal::TERM).unwrap());
        eventually("not restored", || history(&inner.options()).unwrap()[0].state == JournalState::Reverted);
    });
    let guarded = Guarded::new(guard, guardian(&tree)).confirmed_within(Some(LONG));
    let error = guarded.apply(&tree.plan(), &tree.options()).unwrap_err();
    assert!(matches!(error, PlanError::Superseded { .. }), "{error}");
    assert!(error.to_string().ends_with("was restored by its guardian meanwhile"), "{error}");
    assert_eq!(tree.texts(), before);
    assert!(matches!(confirm_newest(&tree.options()), Err(PlanError::NothingToConfirm)));
    eventually("the guardian stays", || guardians(&tree).is_empty());
    let left = fs::read_dir(tree.journals()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!left.into_iter().any(|name| name.to_string_lossy().ends_with("trial")));
}

/// Two people confirm one change at the same time: neither is told that it was restored.
#[test]
fn a_second_confirmation_does_not_say_restored() {
    let tree = Tree::new();
    let journal = apply(&tree.plan(), &tree.options()).unwrap().journal.unwrap();
    await_confirmation(&journal, LONG, &tree.options()).unwrap();
    let said: Vec<Result<String, String>> = thread::scope(|scope| {
        let one = || confirm_newest(&tree.options());
        let both = [scope.spawn(one), scope.spawn(one)].map(|thread| thread.join().unwrap());
        both.into_iter()
            .map(|said| said.map(|done| done.journal).map_err(|error| error.to_string()))
            .collect()
    });
    assert_eq!(said.iter().filter(|said| said.is_ok()).count(), 1, "{said:?}");
    let refused = said.iter().find_map(|said| said.as_ref().err()).unwrap();
    assert!(refused.starts_with("nothing waits for confirmation here"), "{refused}");
}
