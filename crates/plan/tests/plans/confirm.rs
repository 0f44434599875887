//! Plans with a deadline: kept when confirmed in time, restored when not, by the first process that
//! comes to do it.

use std::{fs, io::Write as _, time::Duration};

use clearstream_plan::{
    PlanError, Test, apply, await_confirmation, begin_test, confirm, expire, history, plan_back, recover,
    revert, unconfirmed,
};
use clearstream_schema::plan::JournalState;

use crate::common::{Tree, run_child};

const LONG: Duration = Duration::from_secs(3600);

#[test]
fn a_plan_that_is_confirmed_stays() {
    let tree = Tree::new();
    let journal = apply(&tree.plan(), &tree.options()).unwrap().journal.unwrap();
    assert_eq!(confirm(&journal, &tree.options()).unwrap(), None, "it has no deadline");
    await_confirmation(&journal, LONG, &tree.options()).unwrap();
    let found = unconfirmed(&tree.options()).unwrap();
    assert_eq!((found.len(), found[0].journal.as_str(), found[0].within), (1, journal.as_str(), LONG));
    assert!(found[0].left <= LONG && found[0].left > LONG / 2);
    let after = tree.texts();
    assert_eq!(expire(&journal, &tree.options()).unwrap(), None, "there is time left");
    assert!(confirm(&journal, &tree.options()).unwrap().is_some());
    assert!(unconfirmed(&tree.options()).unwrap().is_empty());
    assert_eq!(expire(&journal, &tree.options()).unwrap(), None);
    assert_eq!(tree.texts(), after);
}

#[test]
fn an_overdue_plan_is_reverted_by_any_process() {
    for is_damaged in [false, true] {
        let tree = Tree::new();
        let before = tree.texts();
        let journal = apply(&tree.plan(), &tree.options()).unwrap().journal.unwrap();
        await_confirmation(&journal, Duration::ZERO, &tree.options()).unwrap();
        if is_damaged {
            fs::write(tree.journals().join(format!("{journal}.trial")), "{").unwrap();
        }
        assert!(unconfirmed(&tree.options()).unwrap()[0].left.is_zero());
        assert_eq!(confirm(&journal, &tree.options()).unwrap(), None, "too late");
        // Others changed a setting meanwhile: the plan is reverted all the same.
        tree.write("sys/class/net/eth0/mtu", "4000\n");
        let done = expire(&journal, &tree.options()).unwrap().unwrap();
        assert_eq!(done.journal, journal);
        assert_eq!(tree.texts(), before);
        assert!(unconfirmed(&tree.options()).unwrap().is_empty());
        let entry = history(&tree.options()).unwrap().pop().unwrap();
        assert_eq!(
            (entry.state, entry.note.as_deref()),
            (JournalState::Reverted, Some("not confirmed within 0 s"))
        );
        assert_eq!(expire(&journal, &tree.options()).unwrap(), None);
    }
}

#[test]
fn a_plan_that_is_reverted_by_hand_has_no_deadline() {
    let tree = Tree::new();
    let journal = apply(&tree.plan(), &tree.options()).unwrap().journal.unwrap();
    await_confirmation(&journal, LONG, &tree.options()).unwrap();
    revert(&journal, false, &tree.options()).unwrap();
    let left: Vec<_> =
        fs::read_dir(tree.journals()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().ends_with("trial")), "{left:?}");
}

/// An interrupted revert is finished, with the marks that a crash leaves.
#[test]
fn a_revert_that_was_interrupted_is_finished_by_the_next() {
    for mark in [r#"{"reverting":{"force":false}}"#, "{\"reverting\":{\"force\":false}}\n{\"writing\":3}"] {
        let tree = Tree::new();
        let before = tree.texts();
        let journal = apply(&tree.plan(), &tree.options()).unwrap().journal.unwrap();
        let path = tree.journals().join(format!("{journal}.jsonl"));
        writeln!(fs::OpenOptions::new().append(true).open(path).unwrap(), "{mark}").unwrap();
        assert_eq!(revert(&journal, false, &tree.options()).unwrap().restored_count, 4);
        assert_eq!(tree.texts(), before);
        assert_eq!(history(&tree.options()).unwrap()[0].state, JournalState::Reverted);
    }
}

/// What an earlier command left half-way is ended before a plan is made or applied upon it,
/// and where that cannot be the error has the reason, not a request to try the same.
#[test]
fn nothing_is_built_upon_what_is_half_way() {
    for is_foreign in [false, true] {
        let tree = Tree::new();
        let before = tree.texts();
        assert!(!run_child("apply", Some(&tree.root()), &tree.journals(), &tree.plan(), 8, |_| ()));
        if is_foreign {
            tree.write("proc/sys/net/ipv4/tcp_rmem", "1 2 3\n");
        }
        let applied = apply(&tree.plan(), &tree.options());
        let journals = history(&tree.options()).unwrap();
        if is_foreign {
            let message = applied.unwrap_err().to_string();
            assert!(message.contains("is \"1 2 3\""), "{message}");
            let remedy = format!("`clearstream plan revert {} --force` restores", journals[0].journal);
            assert!(message.contains(&remedy) && !message.contains("recover"), "{message}");
            revert(&journals[0].journal, true, &tree.options()).unwrap();
        } else {
            assert_eq!(journals.len(), 2);
            assert_eq!(journals[0].state, JournalState::Reverted);
            revert(&applied.unwrap().journal.unwrap(), false, &tree.options()).unwrap();
        }
        assert_eq!(tree.texts(), before);
    }
}

/// A revert with a deadline: kept when confirmed, otherwise the plan is reapplied.
#[test]
fn a_revert_with_a_deadline_is_confirmed_or_undone() {
    for confirmed in [true, false] {
        let tree = Tree::new();
        let before = tree.texts();
        let first = apply(&tree.plan(), &tree.options()).unwrap().journal.unwrap();
        let after = tree.texts();
        let back = plan_back(&first, false, &tree.options()).unwrap();
        let second = apply(&back, &tree.options().reverting(&first)).unwrap().journal.unwrap();
        await_confirmation(&second, if confirmed { LONG } else { Duration::ZERO }, &tree.options()).unwrap();
        assert_eq!(tree.texts(), before);
        let states = || -> Vec<JournalState> {
            history(&tree.options()).unwrap().into_iter().map(|entry| entry.state).collect()
        };
        assert_eq!(states(), [JournalState::Applied, JournalState::Pending]);
        if confirmed {
            let done = confirm(&second, &tree.options()).unwrap().unwrap();
            assert_eq!(done.reverted.as_deref(), Some(first.as_str()));
            assert_eq!(tree.texts(), before);
            assert_eq!(states(), [JournalState::Reverted, JournalState::Reverted]);
        } else {
            let done = recover(&tree.options()).unwrap();
            assert_eq!(
                (done.len(), done[0].found, done[0].now),
                (1, JournalState::Pending, JournalState::Reverted)
            );
            assert_eq!(tree.texts(), after);
            assert_eq!(states(), [JournalState::Applied, JournalState::Reverted]);
            revert(&first, false, &tree.options()).unwrap();
            assert_eq!(tree.texts(), before);
        }
    }
}

/// A plan back does the checks of a revert.
#[test]
fn a_plan_back_is_refused_where_somebody_else_changed_a_value() {
    let tree = Tree::new();
    let journal = apply(&tree.plan(), &tree.options()).unwrap().journal.unwrap();
    tree.write("sys/class/net/eth0/mtu", "4000\n");
    assert!(matches!(plan_back(&journal, false, &tree.options()), Err(PlanError::Conflicts { .. })));
    assert_eq!(plan_back(&journal, true, &tree.options()).unwrap().steps.len(), 4);
}

fn under_test(tree: &Tree) -> (String, Test) {
    let begun = std::sync::Arc::new(std::sync::Mutex::new(None));
    let (slot, folder) = (std::sync::Arc::clone(&begun), tree.options());
    let options = tree.options().before_changes(move |begun| {
        *slot.lock().unwrap() = Some(begin_test(begun.journal, &folder)?);
        Ok(())
    });
    let journal = apply(&tree.plan(), &options).unwrap().journal.unwrap();
    let test = begun.lock().unwrap().take().unwrap();
    (journal, test)
}

#[test]
fn a_change_under_test_is_restored_when_its_tester_is_gone() {
    let tree = Tree::new();
    let before = tree.texts();
    let (journal, test) = under_test(&tree);
    let after = tree.texts();
    assert_eq!(history(&tree.options()).unwrap()[0].state, JournalState::Pending);
    assert!(recover(&tree.options()).unwrap().is_empty(), "its tester lives");
    assert_eq!(tree.texts(), after);
    drop(test);
    let done = recover(&tree.options()).unwrap();
    assert_eq!((done[0].journal.as_str(), done[0].found), (journal.as_str(), JournalState::Pending));
    assert_eq!((done[0].now, &done[0].problem), (JournalState::Reverted, &None));
    assert_eq!(tree.texts(), before);
    assert!(recover(&tree.options()).unwrap().is_empty());
}

#[test]
fn a_change_that_was_kept_stays_and_one_that_was_not_goes() {
    let tree = Tree::new();
    let before = tree.texts();
    let (journal, test) = under_test(&tree);
    assert_eq!(test.journal(), journal);
    test.keep(&tree.options()).unwrap();
    let after = tree.texts();
    assert!(recover(&tree.options()).unwrap().is_empty());
    assert_eq!((tree.texts(), history(&tree.options()).unwrap()[0].state), (after, JournalState::Applied));
    revert(&journal, false, &tree.options()).unwrap();
    let (_, test) = under_test(&tree);
    assert_eq!(test.restore(&tree.options()).unwrap().restored_count, 4);
    assert_eq!(tree.texts(), before);
    let left: Vec<_> = fs::read_dir(tree.journals()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.iter().all(|path| path.extension().is_none_or(|end| end == "jsonl")), "{left:?}");
}

/// kill -9 at every moment of applying a change that is tested.
#[test]
fn killed_at_every_moment_of_a_test() {
    let mut moments = 0;
    loop {
        let tree = Tree::new();
        let before = tree.texts();
        if run_child("test", Some(&tree.root()), &tree.journals(), &tree.plan(), moments, |_| ()) {
            break;
        }
        for recovered in recover(&tree.options()).unwrap() {
            assert_eq!(recovered.problem, None, "moment {moments}");
        }
        assert_eq!(tree.texts(), before, "moment {moments}");
        moments += 1;
    }
    assert_eq!(moments, 2 + 3 * 4 + 1);
}
