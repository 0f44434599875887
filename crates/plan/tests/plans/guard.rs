//! Plans under a scripted guard: rejected, restored, unconfirmed.

use std::{cell::Cell, io, process::Command, rc::Rc, time::Duration};

use clearstream_plan::{
    Danger, Guard, Guarded, PlanError, Snapshot, apply, await_confirmation, confirm_newest, recover,
    unconfirmed,
};
use clearstream_schema::plan::Plan;

use crate::common::Tree;

const LONG: Duration = Duration::from_secs(3600);

/// Returns scripted results.
#[derive(Clone, Default)]
pub(crate) struct Scripted {
    is_untouched: bool,
    dangers: Vec<Danger>,
    is_lost: bool,
    snapshot_count: Rc<Cell<u32>>,
    /// Called when the paths are looked up after the change.
    when_checked: Option<Rc<dyn Fn()>>,
}

impl Scripted {
    pub(crate) fn when_checked(check: impl Fn() + 'static) -> Self {
        Self { when_checked: Some(Rc::new(check)), ..Self::default() }
    }
}

impl Guard for Scripted {
    fn is_touched_by(&self, _: &Plan) -> bool {
        !self.is_untouched
    }

    fn dangers(&self, _: &Plan) -> Result<Vec<Danger>, PlanError> {
        Ok(self.dangers.clone())
    }

    fn snapshot(&self) -> Box<dyn Snapshot> {
        self.snapshot_count.set(self.snapshot_count.get() + 1);
        Box::new(Before { is_lost: self.is_lost, when_checked: self.when_checked.clone() })
    }
}

struct Before {
    is_lost: bool,
    when_checked: Option<Rc<dyn Fn()>>,
}

impl Snapshot for Before {
    fn lost(&self, _: bool) -> Option<String> {
        if let Some(check) = &self.when_checked {
            check();
        }
        self.is_lost.then(|| "the session is gone".to_owned())
    }
}

/// A guardian that answers and does nothing.
fn idle() -> io::Result<Command> {
    let mut command = Command::new("sh");
    command.args(["-c", "echo ready; cat >/dev/null"]);
    Ok(command)
}

/// A guardian that ends before it has understood anything.
fn mute() -> io::Result<Command> {
    Ok(Command::new("true"))
}

fn none() -> io::Result<Command> {
    Err(io::ErrorKind::NotFound.into())
}

fn danger(is_cut: bool) -> Danger {
    Danger { subject: "the session".to_owned(), before: "on a".to_owned(), after: "on b".to_owned(), is_cut }
}

#[test]
fn what_is_cut_needs_force_and_what_moves_needs_confirmation_too() {
    let tree = Tree::new();
    let under =
        |is_cut| Guarded::new(Scripted { dangers: vec![danger(is_cut)], ..Scripted::default() }, idle);
    let refused = |guarded: &Guarded| {
        let found = guarded.dangers(&tree.plan()).unwrap();
        guarded.refuse(found).err().map(|error| error.to_string())
    };
    let cut = refused(&under(true)).unwrap();
    assert_eq!(
        cut,
        "nothing was changed: it would cut the session: on a now, on b afterwards; --force does it all the same"
    );
    assert!(refused(&under(true).confirmed_within(Some(LONG))).is_some());
    assert_eq!(refused(&under(true).forcing(true)), None);
    let moved = refused(&under(false)).unwrap();
    assert!(moved.contains("it would move") && moved.contains("add --confirm-within 60s"), "{moved}");
    assert_eq!(refused(&under(false).confirmed_within(Some(LONG))), None);
    assert_eq!(refused(&under(false).forcing(true)), None);
}

#[test]
fn what_the_guard_finds_lost_is_restored() {
    let tree = Tree::new();
    let before = tree.texts();
    let under = || Guarded::new(Scripted { is_lost: true, ..Scripted::default() }, idle);
    let error = under().apply(&tree.plan(), &tree.options()).unwrap_err();
    assert_eq!(error.to_string(), "everything was restored: the session is gone");
    assert_eq!(tree.texts(), before);
    let applied = under().forcing(true).apply(&tree.plan(), &tree.options()).unwrap();
    assert_ne!(tree.texts(), before);
    // A revert continues, and reports what was lost by it.
    let error = under().revert(&applied.journal.unwrap(), &tree.options()).unwrap_err();
    assert!(matches!(error, PlanError::LostByRevert { .. }), "{error}");
    assert_eq!(tree.texts(), before);
}

#[test]
fn what_waits_for_confirmation_is_not_built_upon() {
    let tree = Tree::new();
    let guarded = Guarded::new(Scripted::default(), idle).confirmed_within(Some(LONG));
    let applied = guarded.apply(&tree.plan(), &tree.options()).unwrap();
    let waiting = unconfirmed(&tree.options()).unwrap();
    assert_eq!(Some(&waiting[0].journal), applied.journal.as_ref());
    let refused = guarded.apply(&tree.plan(), &tree.options()).unwrap_err();
    assert!(refused.to_string().contains("run clearstream plan confirm"), "{refused}");
    let confirmed = confirm_newest(&tree.options()).unwrap();
    assert_eq!((Some(confirmed.journal), confirmed.reverted), (applied.journal, None));
    assert!(matches!(confirm_newest(&tree.options()), Err(PlanError::NothingToConfirm)));
    let unchanged = guarded.apply(&tree.plan(), &tree.options()).unwrap();
    assert_eq!((unchanged.journal, unchanged.changed.len()), (None, 0));
}

#[test]
fn a_confirmation_that_comes_too_late_restores() {
    let tree = Tree::new();
    let before = tree.texts();
    let journal = apply(&tree.plan(), &tree.options()).unwrap().journal.unwrap();
    await_confirmation(&journal, Duration::ZERO, &tree.options()).unwrap();
    let error = confirm_newest(&tree.options()).unwrap_err();
    assert_eq!(error.to_string(), format!("too late: journal {journal} was restored"));
    assert_eq!(tree.texts(), before);
}

#[test]
fn nothing_is_started_for_a_plan_beside_the_guard_and_nothing_changed_without_a_guardian() {
    let tree = Tree::new();
    let before = tree.texts();
    let guard = Scripted { is_untouched: true, dangers: vec![danger(true)], ..Scripted::default() };
    let guarded = Guarded::new(guard.clone(), none);
    assert_eq!(guarded.dangers(&tree.plan()).unwrap(), []);
    let journal = guarded.apply(&tree.plan(), &tree.options()).unwrap().journal.unwrap();
    guarded.revert(&journal, &tree.options()).unwrap();
    assert_eq!((guard.snapshot_count.get(), tree.texts()), (0, before.clone()));
    // Also if only the confirmation needs one.
    let guards = [none, mute].map(|guardian| Guarded::new(Scripted::default(), guardian));
    for guarded in guards.into_iter().chain([guarded.confirmed_within(Some(LONG))]) {
        let error = guarded.apply(&tree.plan(), &tree.options()).unwrap_err();
        assert!(matches!(error, PlanError::Guardian { .. }), "{error}");
        assert_eq!(tree.texts(), before);
        assert!(recover(&tree.options()).unwrap().is_empty());
    }
}
