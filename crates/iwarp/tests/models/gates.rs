//! Memory of others: nobody is inside any more when its owner has it back.

use loom::{cell::UnsafeCell, sync::Arc, thread};

use crate::{gate::Gate, in_every_order};

/// Memory behind a gate. loom reports an access that the owner's overlaps.
struct Foreign {
    gate: Gate,
    memory: UnsafeCell<bool>,
}

impl Foreign {
    fn new() -> Arc<Self> {
        Arc::new(Self { gate: Gate::new(), memory: UnsafeCell::new(true) })
    }

    /// Uses the memory if it may, and while it does so once more, as a call with
    /// two pieces of one region does.
    fn used(&self) -> bool {
        let Some(_inside) = self.gate.enter() else { return false };
        self.memory.with(|_| ());
        if let Some(_again) = self.gate.enter() {
            self.memory.with(|_| ());
        }
        self.memory.with(|_| ());
        true
    }

    /// Deregisters it, and then frees it.
    fn taken_back(&self) {
        self.gate.close();
        self.memory.with_mut(|_| ());
    }
}

#[test]
fn memory_is_freed_when_everybody_has_left() {
    in_every_order(4, || {
        let foreign = Foreign::new();
        let users = [foreign.clone(), foreign.clone()].map(|foreign| thread::spawn(move || foreign.used()));
        foreign.taken_back();
        assert!(!foreign.used(), "it is closed for good");
        for user in users {
            user.join().unwrap();
        }
    });
}

#[test]
fn two_may_close_it() {
    in_every_order(4, || {
        let foreign = Foreign::new();
        let user = thread::spawn({
            let foreign = foreign.clone();
            move || foreign.used()
        });
        let other = thread::spawn({
            let foreign = foreign.clone();
            move || foreign.gate.close()
        });
        foreign.gate.close();
        user.join().unwrap();
        other.join().unwrap();
        foreign.memory.with_mut(|_| ());
    });
}
