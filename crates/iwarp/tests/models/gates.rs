//! Gate of foreign memory: no access is in progress after it was closed.

use loom::{cell::UnsafeCell, sync::Arc, thread};

use crate::{explore, gate::Gate};

/// Memory behind a gate. loom reports an access that overlaps the owner's.
struct Foreign {
    gate: Gate,
    memory: UnsafeCell<bool>,
}

impl Foreign {
    fn new() -> Arc<Self> {
        Arc::new(Self { gate: Gate::new(), memory: UnsafeCell::new(true) })
    }

    /// Accesses the memory if the gate is open, and nested a second time, like
    /// a call with two pieces of one region.
    fn used(&self) -> bool {
        let Some(_inside) = self.gate.enter() else { return false };
        self.memory.with(|_| ());
        if let Some(_nested) = self.gate.enter() {
            self.memory.with(|_| ());
        }
        self.memory.with(|_| ());
        true
    }

    /// Closes the gate, and then frees the memory.
    fn withdraw(&self) {
        self.gate.close();
        self.memory.with_mut(|_| ());
    }
}

#[test]
fn memory_is_freed_after_the_last_access() {
    explore(4, || {
        let foreign = Foreign::new();
        let users = [foreign.clone(), foreign.clone()].map(|foreign| thread::spawn(move || foreign.used()));
        foreign.withdraw();
        assert!(!foreign.used(), "it is closed for good");
        for user in users {
            user.join().unwrap();
        }
    });
}

#[test]
fn two_threads_may_close_it() {
    explore(4, || {
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
