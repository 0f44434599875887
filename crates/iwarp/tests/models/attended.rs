//! Adaptive progress: a helper that yields is woken when the program leaves.

use loom::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use crate::{Descriptor, attendance::Attendance, explore};

/// A queue that counts as polled from two polls on.
struct Queue {
    attendance: Attendance,
    /// A thread of the program moves bytes.
    moving: AtomicBool,
    doorbell: Descriptor,
}

impl Queue {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            attendance: Attendance::new(2),
            moving: AtomicBool::new(false),
            doorbell: Descriptor::new(),
        })
    }

    fn leave(&self) {
        if self.attendance.leave() {
            self.doorbell.ring();
        }
    }

    /// The helper, at an event of a socket, without ticks: if it yields it
    /// sleeps until the program wakes it. A lost wake-up is a deadlock.
    fn serve(&self) {
        while self.attendance.attend(|| self.moving.load(Ordering::Acquire)) {
            while self.attendance.is_attended() {
                self.doorbell.poll();
                self.doorbell.read();
            }
        }
    }
}

#[test]
fn a_helper_that_yielded_is_woken_when_the_program_leaves() {
    explore(3, || {
        let queue = Queue::new();
        let program = thread::spawn({
            let queue = queue.clone();
            move || {
                (0..3).for_each(|_| queue.attendance.note_poll());
                queue.leave();
                // The poll after arming.
                queue.attendance.note_poll();
            }
        });
        queue.serve();
        program.join().unwrap();
        assert!(!queue.attendance.is_attended(), "the helper works");
    });
}

/// One poll that moves a large message, too few to count.
#[test]
fn a_helper_that_yielded_to_a_thread_that_moves_bytes_is_woken_when_it_leaves() {
    explore(3, || {
        let queue = Queue::new();
        let program = thread::spawn({
            let queue = queue.clone();
            move || {
                queue.attendance.note_poll();
                queue.moving.store(true, Ordering::Release);
                queue.moving.store(false, Ordering::Release);
                queue.leave();
            }
        });
        queue.serve();
        program.join().unwrap();
        assert!(!queue.attendance.is_attended(), "the helper works");
    });
}

/// Two threads of the program, of which one polls on: with ticks the helper
/// takes over once no thread polls.
#[test]
fn ticks_end_the_attendance_of_a_queue_that_no_thread_polls() {
    explore(2, || {
        let queue = Queue::new();
        let threads = [2, 1].map(|polls| {
            let queue = queue.clone();
            thread::spawn(move || {
                (0..polls).for_each(|_| queue.attendance.note_poll());
                queue.leave();
            })
        });
        queue.attendance.attend(|| false);
        for thread in threads {
            thread.join().unwrap();
        }
        // The first tick may find polls of the interval before it.
        queue.attendance.tick(|| false);
        queue.attendance.tick(|| false);
        assert!(!queue.attendance.is_attended());
        assert!(!queue.attendance.attend(|| false));
        // A helper that may not work remembers nothing of it.
        queue.attendance.reset();
        assert!(!queue.attendance.leave());
    });
}
