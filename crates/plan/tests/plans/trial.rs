//! Plans on trial: kept when confirmed in time, put back when not, whoever
//! comes to do it.

use std::{fs, time::Duration};

use clearstream_plan::{apply, begin_trial, confirm, expire, history, revert, trials};
use clearstream_schema::plan::JournalState;

use crate::common::Tree;

const LONG: Duration = Duration::from_secs(3600);

#[test]
fn a_plan_that_is_confirmed_stays() {
    let tree = Tree::new();
    let journal = apply(&tree.plan(), &tree.options()).unwrap().journal.unwrap();
    assert_eq!(confirm(&journal, &tree.options()).unwrap(), None, "it is not on trial");
    begin_trial(&journal, LONG, &tree.options()).unwrap();
    let found = trials(&tree.options()).unwrap();
    assert_eq!((found.len(), found[0].journal.as_str(), found[0].within), (1, journal.as_str(), LONG));
    assert!(found[0].left <= LONG && found[0].left > LONG / 2);
    let after = tree.texts();
    assert_eq!(expire(&journal, &tree.options()).unwrap(), None, "there is time left");
    assert!(confirm(&journal, &tree.options()).unwrap().is_some());
    assert!(trials(&tree.options()).unwrap().is_empty());
    assert_eq!(expire(&journal, &tree.options()).unwrap(), None);
    assert_eq!(tree.texts(), after);
}

#[test]
fn an_overdue_plan_is_put_back_by_whoever_comes() {
    for died_after_the_rename in [false, true] {
        let tree = Tree::new();
        let before = tree.texts();
        let journal = apply(&tree.plan(), &tree.options()).unwrap().journal.unwrap();
        begin_trial(&journal, Duration::ZERO, &tree.options()).unwrap();
        if died_after_the_rename {
            let name = |extension: &str| tree.journals().join(format!("{journal}.{extension}"));
            fs::rename(name("trial"), name("expired")).unwrap();
        }
        assert!(trials(&tree.options()).unwrap()[0].left.is_zero());
        assert_eq!(confirm(&journal, &tree.options()).unwrap(), None, "too late");
        // Somebody changed a setting meanwhile: the plan goes back all the same.
        tree.write("sys/class/net/eth0/mtu", "4000\n");
        let done = expire(&journal, &tree.options()).unwrap().unwrap();
        assert_eq!(done.journal, journal);
        assert_eq!(tree.texts(), before);
        assert!(trials(&tree.options()).unwrap().is_empty());
        let entry = history(&tree.options()).unwrap().pop().unwrap();
        assert_eq!(
            (entry.state, entry.note.as_deref()),
            (JournalState::Reverted, Some("not confirmed within 0 s"))
        );
        assert_eq!(expire(&journal, &tree.options()).unwrap(), None);
    }
}

#[test]
fn a_plan_that_is_put_back_by_hand_is_no_longer_on_trial() {
    let tree = Tree::new();
    let journal = apply(&tree.plan(), &tree.options()).unwrap().journal.unwrap();
    begin_trial(&journal, LONG, &tree.options()).unwrap();
    revert(&journal, false, &tree.options()).unwrap();
    let left: Vec<_> =
        fs::read_dir(tree.journals()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().ends_with("trial")), "{left:?}");
}
