//! Adaptive progress with its helper thread: a program that does not call is
//! served, and statistics name the threads that moved the bytes.

use clearstream_iwarp::verbs::{Access, Notify, Region, SendOptions};

use crate::rnic::sides::{Side, TIMEOUT, adaptive, done, inline, offloaded, pattern, plain_pair, until};

#[test]
fn a_peers_reads_are_served_while_the_program_does_not_call() {
    let (left, right) = plain_pair(&adaptive());
    let region = Region::new(&right.domain, 1 << 20, Access::REMOTE_READ).unwrap();
    region.write(0, &pattern(1 << 20, 3));
    let before = right.queue_pair.statistics();
    for id in 0..16 {
        let buffer = left.domain.buffer(1 << 16).unwrap();
        let from = region.remote(id as usize * (1 << 16));
        left.queue_pair.read(id, buffer, from, SendOptions::default()).unwrap();
        let read = done(&left, &[]);
        assert_eq!(&read.buffers[0][..], &region.to_vec(id as usize * (1 << 16), 1 << 16)[..]);
    }
    // A thread counts after it has sent.
    let read_bytes = left.queue_pair.statistics().received_bytes();
    until("all is counted", || right.queue_pair.statistics().sent_bytes() == read_bytes);
    let after = right.queue_pair.statistics();
    assert_eq!(after.by_program, before.by_program, "it made no call");
    assert!(after.by_helper.sent_bytes - before.by_helper.sent_bytes > 1 << 20);
    assert_eq!(left.queue_pair.statistics().sends, 16);
}

/// What is posted beyond a turn's budget is sent although the program makes no
/// further call.
#[test]
fn a_long_write_goes_on_while_both_programs_do_not_call() {
    let (left, right) = plain_pair(&adaptive());
    let region = Region::new(&right.domain, 16 << 20, Access::REMOTE_WRITE).unwrap();
    let mut buffer = left.domain.buffer(16 << 20).unwrap();
    let bytes = pattern(16 << 20, 5);
    buffer.copy_from_slice(&bytes);
    left.queue_pair.write(1, buffer, region.remote(0), SendOptions::default()).unwrap();
    let last = &bytes[bytes.len() - 4096..];
    until("the last byte arrives", || region.to_vec(bytes.len() - 4096, 4096) == last);
    assert!(left.queue_pair.statistics().by_helper.sent_bytes > 8 << 20);
}

#[test]
fn statistics_name_the_threads_of_the_progress_mode() {
    for (options, mode) in [(inline(), 0), (offloaded(), 1), (adaptive(), 2)] {
        let (left, right) = plain_pair(&options);
        for id in 0..8 {
            right.queue_pair.receive(id, right.domain.buffer(8).unwrap()).unwrap();
            left.queue_pair.send(id, &[7; 8][..], SendOptions::default()).unwrap();
            if mode == 2 {
                // The program sleeps: the helper brings the completion.
                assert!(right.completions.wait(TIMEOUT).unwrap().is_some());
            } else {
                done(&right, &[&left]);
            }
            done(&left, &[&right]);
        }
        let bytes_of = |side: &Side| {
            let statistics = side.queue_pair.statistics();
            [statistics.sent_bytes(), statistics.received_bytes()]
        };
        until("one side's bytes are the other's", || {
            let [sent, received] = bytes_of(&right);
            bytes_of(&left) == [received, sent]
        });
        let (sent, received) = (left.queue_pair.statistics(), right.queue_pair.statistics());
        assert_eq!((sent.sends, received.receives), (8, 8));
        for moved in [sent, received] {
            assert_eq!(moved.by_engine.visits > 0, mode == 1);
            assert!(mode == 2 || moved.by_helper.visits == 0);
        }
        // Arming says that the program is about to sleep.
        right.completions.arm(Notify::Next).unwrap();
    }
}
