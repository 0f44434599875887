//! Graceful close.

use std::time::Duration;

use clearstream_iwarp::{
    verbs::{AsyncEvent, SendOptions, State, VerbsError},
    work::Status,
};

use crate::rnic::sides::{Side, all_modes, done, finished, pattern, plain_pair, until};

fn events(side: &Side) -> Vec<AsyncEvent> {
    std::iter::from_fn(|| side.rnic.events().next(Some(Duration::ZERO))).collect()
}

#[test]
fn a_disconnect_sends_what_was_posted_and_ends_both_sides() {
    for options in all_modes() {
        let (left, right) = plain_pair(&options);
        let bytes = pattern(2 << 20, 5);
        right.queue_pair.receive(1, right.domain.buffer(bytes.len()).unwrap()).unwrap();
        right.queue_pair.receive(2, right.domain.buffer(1).unwrap()).unwrap();
        let mut buffer = left.domain.buffer(bytes.len()).unwrap();
        buffer.copy_from_slice(&bytes);
        left.queue_pair.send(3, buffer, SendOptions::default()).unwrap();
        left.queue_pair.modify(State::Closing).unwrap();
        let refused = left.queue_pair.send(4, &b"late"[..], SendOptions::default());
        assert!(refused.is_err());
        let received = done(&right, &[&left]);
        assert_eq!(&received.buffers[0][..], &bytes[..]);
        assert_eq!(done(&left, &[&right]).completion.id, 3);
        let flushed = finished(&right, &[&left]);
        assert_eq!((flushed.completion.id, flushed.completion.status), (2, Status::Flushed));
        assert_eq!(flushed.buffers.len(), 1);
        until("both sides end in order", || {
            _ = left.completions.progress() | right.completions.progress();
            [&left, &right].iter().all(|side| side.queue_pair.state() == State::Idle)
        });
        let reported = events(&right);
        let id = right.queue_pair.id();
        assert!(
            reported.contains(&AsyncEvent::Disconnected { queue_pair: id, failure: None }),
            "{reported:?}"
        );
        // A closed queue pair stays closed.
        assert!(right.queue_pair.receive(5, right.domain.buffer(1).unwrap()).is_err());
        assert!(matches!(left.queue_pair.modify(State::Rts), Err(VerbsError::Transition { .. })));
    }
}

#[test]
fn a_queue_pair_that_is_dropped_ends_the_other_side() {
    for options in all_modes() {
        let (left, right) = plain_pair(&options);
        right.queue_pair.receive(1, right.domain.buffer(4).unwrap()).unwrap();
        right.queue_pair.receive(2, right.domain.buffer(4).unwrap()).unwrap();
        left.queue_pair.send(1, &b"last"[..], SendOptions::default()).unwrap();
        done(&left, &[&right]);
        drop(left);
        assert_eq!(&done(&right, &[]).buffers[0][..], b"last");
        let flushed = finished(&right, &[]);
        assert_eq!((flushed.completion.id, flushed.completion.status), (2, Status::Flushed));
        until("it ends", || {
            _ = right.completions.progress();
            right.queue_pair.state() == State::Idle
        });
    }
}

#[test]
fn a_queue_pair_in_error_flushes_both_sides() {
    for options in all_modes() {
        let (left, right) = plain_pair(&options);
        for side in [&left, &right] {
            side.queue_pair.receive(1, side.domain.buffer(4).unwrap()).unwrap();
        }
        left.queue_pair.modify(State::Error).unwrap();
        for side in [&left, &right] {
            let flushed = finished(side, &[&left, &right]);
            assert_eq!(flushed.completion.status, Status::Flushed);
            // An engine publishes the state at the end of its turn, after the completion.
            until("it is in error", || {
                _ = side.completions.progress();
                side.queue_pair.state() == State::Error
            });
        }
        assert!(left.queue_pair.send(2, &b"late"[..], SendOptions::default()).is_err());
    }
}

#[test]
fn an_idle_queue_pair_takes_receives_and_no_sends() {
    for options in all_modes() {
        let side = Side::new(options);
        side.queue_pair.receive(1, side.domain.buffer(4).unwrap()).unwrap();
        assert!(side.queue_pair.send(2, &b"early"[..], SendOptions::default()).is_err());
        assert!(matches!(side.queue_pair.modify(State::Closing), Err(VerbsError::Transition { .. })));
    }
}
