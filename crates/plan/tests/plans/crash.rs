//! kill -9 at every moment of apply, revert and recover: afterwards `recover`
//! ends in the state before or the state after.

use std::fs;

use crate::common::{Tree, run_child};
use clearstream_plan::{apply, history, recover, revert};
use clearstream_schema::plan::JournalState;

fn dies(tree: &Tree, action: &str, at: usize) -> bool {
    !run_child(action, Some(&tree.root()), &tree.journals(), &tree.plan(), at, |_| ())
}

#[test]
fn killed_at_every_moment_of_apply() {
    let mut moments = 0;
    loop {
        let tree = Tree::new();
        let before = tree.texts();
        if !dies(&tree, "apply", moments) {
            break;
        }
        recover(&tree.options()).unwrap();
        let all = history(&tree.options()).unwrap();
        match all.first().map(|entry| entry.state) {
            // The kill after the last mark comes when everything is done.
            Some(JournalState::Applied) => assert_ne!(tree.texts(), before, "moment {moments}"),
            Some(JournalState::Reverted) | None => assert_eq!(tree.texts(), before, "moment {moments}"),
            other => panic!("moment {moments}: {other:?}"),
        }
        assert!(recover(&tree.options()).unwrap().is_empty(), "a second recover has nothing to do");
        // Another plan can be applied.
        apply(&tree.plan(), &tree.options()).unwrap();
        moments += 1;
    }
    // Two of the journal, three of each of four steps, the end.
    assert_eq!(moments, 2 + 3 * 4 + 1);
}

#[test]
fn killed_at_every_moment_of_revert() {
    let mut moments = 0;
    loop {
        let tree = Tree::new();
        let before = tree.texts();
        let journal = apply(&tree.plan(), &tree.options()).unwrap().journal.unwrap();
        let after = tree.texts();
        assert_ne!(before, after);
        if !dies(&tree, &journal, moments) {
            assert_eq!(tree.texts(), before);
            break;
        }
        recover(&tree.options()).unwrap();
        assert_eq!(tree.texts(), before, "moment {moments}: the revert had begun, so it is finished");
        assert_eq!(history(&tree.options()).unwrap()[0].state, JournalState::Reverted);
        moments += 1;
    }
    assert_eq!(moments, 1 + 3 * 4 + 1);
}

#[test]
fn killed_in_recover_too() {
    for first in [2, 6, 9, 13, 14] {
        for second in 0.. {
            let tree = Tree::new();
            let before = tree.texts();
            assert!(dies(&tree, "apply", first));
            let died = dies(&tree, "recover", second);
            for recovered in recover(&tree.options()).unwrap() {
                assert_eq!(recovered.problem, None, "moments {first}, {second}");
            }
            if first < 14 {
                assert_eq!(tree.texts(), before, "moments {first}, {second}");
            }
            if !died {
                break;
            }
        }
    }
}

/// The last write to the journal cut at every byte, as a lost power leaves it.
#[test]
fn a_torn_last_line_is_tolerated() {
    let tree = Tree::new();
    let journal = apply(&tree.plan(), &tree.options()).unwrap().journal.unwrap();
    let path = tree.journals().join(format!("{journal}.jsonl"));
    let whole = fs::read(&path).unwrap();
    let head = whole.iter().position(|&byte| byte == b'\n').unwrap() + 1;
    for cut in head..whole.len() {
        let tree = Tree::new();
        let before = tree.texts();
        apply(&tree.plan(), &tree.options()).unwrap();
        let own = fs::read_dir(tree.journals()).unwrap().map(|entry| entry.unwrap().path());
        let own = own.into_iter().find(|path| path.extension().is_some()).unwrap();
        fs::write(&own, &whole[..cut]).unwrap();
        for recovered in recover(&tree.options()).unwrap() {
            assert_eq!(recovered.problem, None, "cut at {cut}");
        }
        match history(&tree.options()).unwrap()[0].state {
            // The mark was whole but for its line end.
            JournalState::Applied => assert_eq!(cut, whole.len() - 1),
            JournalState::Reverted => assert_eq!(tree.texts(), before, "cut at {cut}"),
            other => panic!("cut at {cut}: {other:?}"),
        }
    }
    for cut in 0..head {
        fs::write(&path, &whole[..cut]).unwrap();
        let message = revert(&journal, true, &tree.options()).unwrap_err().to_string();
        assert!(message.contains("not a readable journal") && !message.contains('\n'), "{message}");
    }
}
