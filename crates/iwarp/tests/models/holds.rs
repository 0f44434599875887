//! A Write that is held while the helper's ticks end is sent by one of both.

use loom::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use crate::{Descriptor, explore, ticks::Ticks};

/// Ticks, and the number of Writes that are held.
struct Holder {
    ticks: Ticks,
    held: AtomicUsize,
    doorbell: Descriptor,
}

impl Holder {
    fn new() -> Arc<Self> {
        Arc::new(Self { ticks: Ticks::new(), held: AtomicUsize::new(0), doorbell: Descriptor::new() })
    }

    fn send(&self) -> bool {
        self.held.swap(0, Ordering::AcqRel);
        true
    }

    /// A thread of the program posts a small Write.
    fn post(&self) {
        if self.ticks.are_running() {
            self.held.fetch_add(1, Ordering::AcqRel);
            if !self.ticks.hold() {
                self.send();
            }
        } else if self.ticks.start() {
            self.doorbell.ring();
        }
    }

    /// The helper, from its wake-up until it sleeps without ticks.
    fn tick(&self) {
        self.doorbell.poll();
        self.doorbell.read();
        while self.ticks.are_running() && self.ticks.tick(|| self.send()) {}
    }
}

#[test]
fn no_write_is_held_when_the_ticks_have_ended() {
    explore(3, || {
        let holder = Holder::new();
        holder.post();
        let helper = thread::spawn({
            let holder = holder.clone();
            move || holder.tick()
        });
        let other = thread::spawn({
            let holder = holder.clone();
            move || holder.post()
        });
        holder.post();
        helper.join().unwrap();
        other.join().unwrap();
        // Those that were woken after the helper slept are its next ticks.
        if holder.ticks.are_running() {
            holder.tick();
        }
        assert_eq!(holder.held.load(Ordering::Acquire), 0);
    });
}
