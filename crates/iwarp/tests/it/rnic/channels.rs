//! Event channels, shared receive queues, and sleeping instead of polling.

use std::{thread, time::Duration};

use clearstream_iwarp::verbs::{
    AcceptOptions, AsyncEvent, CompletionChannel, CompletionQueue, ConnectOptions, Notify, ProtectionDomain,
    QueuePair, QueuePairOptions, Rnic, RnicOptions, SendOptions, SharedReceiveQueue,
};
use rustix::event::{PollFd, PollFlags, poll};

use crate::rnic::sides::{Side, TIMEOUT, all_modes, done, join, plain_pair};

/// Creates a side whose completions generate events with token 9.
fn with_channel(options: &RnicOptions) -> (Side, CompletionChannel) {
    let rnic = Rnic::open(options.clone()).unwrap();
    let channel = CompletionChannel::new().unwrap();
    let completions = CompletionQueue::with_channel(&rnic, 64, &channel, 9).unwrap();
    let domain = ProtectionDomain::new(&rnic);
    let queue_pair = QueuePair::new(&domain, &QueuePairOptions::new(&completions)).unwrap();
    (Side { domain, completions, queue_pair, rnic }, channel)
}

fn readable(channel: &CompletionChannel, timeout: Duration) -> bool {
    let timeout = timeout.try_into().unwrap();
    poll(&mut [PollFd::new(channel, PollFlags::IN)], Some(&timeout)).unwrap() == 1
}

#[test]
fn an_armed_queue_wakes_a_sleeper_once() {
    for options in all_modes() {
        let (right, channel) = with_channel(&options);
        let left = Side::new(options);
        for id in 0..3 {
            right.queue_pair.receive(id, right.domain.buffer(4).unwrap()).unwrap();
        }
        join(
            &left.queue_pair,
            &ConnectOptions::default(),
            (&right.rnic, &right.queue_pair),
            &AcceptOptions::default(),
        );
        assert!(right.poll().is_none());
        right.completions.arm(Notify::Next).unwrap();
        assert_eq!(channel.next(Some(Duration::ZERO)), None);
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| channel.next(Some(TIMEOUT)));
            left.queue_pair.send(1, &b"wake"[..], SendOptions::default()).unwrap();
            assert_eq!(sleeper.join().unwrap(), Some(9));
        });
        assert_eq!(done(&right, &[&left]).completion.id, 0);
        // Not rearmed: no event, but the completion is there.
        left.queue_pair.send(2, &b"none"[..], SendOptions::default()).unwrap();
        assert_eq!(done(&right, &[&left]).completion.id, 1);
        assert_eq!(channel.next(Some(Duration::ZERO)), None);
        // A program with its own event loop polls the descriptor.
        right.completions.arm(Notify::Next).unwrap();
        assert!(!readable(&channel, Duration::ZERO));
        left.queue_pair.send(3, &b"poll"[..], SendOptions::default()).unwrap();
        let mut token = None;
        while token.is_none() {
            assert!(readable(&channel, TIMEOUT));
            token = channel.next(Some(Duration::ZERO));
        }
        assert_eq!(done(&right, &[&left]).completion.id, 2);
        assert!(!readable(&channel, Duration::ZERO));
    }
}

#[test]
fn a_queue_armed_for_solicited_completions_sleeps_through_others() {
    for options in all_modes() {
        let (right, channel) = with_channel(&options);
        let left = Side::new(options);
        for id in 0..2 {
            right.queue_pair.receive(id, right.domain.buffer(4).unwrap()).unwrap();
        }
        join(
            &left.queue_pair,
            &ConnectOptions::default(),
            (&right.rnic, &right.queue_pair),
            &AcceptOptions::default(),
        );
        right.completions.arm(Notify::Solicited).unwrap();
        left.queue_pair.send(1, &b"hush"[..], SendOptions::default()).unwrap();
        done(&left, &[&right]);
        assert_eq!(done(&right, &[]).completion.id, 0);
        assert_eq!(channel.next(Some(Duration::ZERO)), None);
        left.queue_pair
            .send(2, &b"loud"[..], SendOptions { solicited: true, ..SendOptions::default() })
            .unwrap();
        assert_eq!(channel.next(Some(TIMEOUT)), Some(9));
        assert_eq!(done(&right, &[]).completion.id, 1);
    }
}

#[test]
fn waiting_sleeps_until_there_is_a_completion() {
    for options in all_modes() {
        let (left, right) = plain_pair(&options);
        right.queue_pair.receive(1, right.domain.buffer(4).unwrap()).unwrap();
        assert!(right.completions.wait(Duration::from_millis(1)).unwrap().is_none());
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| right.completions.wait(TIMEOUT).unwrap());
            // Longer than its polling time.
            thread::sleep(Duration::from_millis(2));
            left.queue_pair.send(1, &b"wake"[..], SendOptions::default()).unwrap();
            assert_eq!(sleeper.join().unwrap().unwrap().completion.id, 1);
        });
    }
}

#[test]
fn a_shared_receive_queue_serves_several_queue_pairs_and_reports_its_limit() {
    for options in all_modes() {
        let rnic = Rnic::open(options.clone()).unwrap();
        let domain = ProtectionDomain::new(&rnic);
        let completions = CompletionQueue::new(&rnic, 64).unwrap();
        let shared = SharedReceiveQueue::new(&domain, 8, 5).unwrap();
        shared.set_limit(2);
        let of_shared =
            QueuePairOptions { shared_receives: Some(&shared), ..QueuePairOptions::new(&completions) };
        let queue_pairs: Vec<_> = (0..3).map(|_| QueuePair::new(&domain, &of_shared).unwrap()).collect();
        let peers: Vec<_> = queue_pairs
            .iter()
            .map(|queue_pair| {
                let peer = Side::new(options.clone());
                join(
                    &peer.queue_pair,
                    &ConnectOptions::default(),
                    (&rnic, queue_pair),
                    &AcceptOptions::default(),
                );
                peer
            })
            .collect();
        assert!(queue_pairs[0].receive(1, domain.buffer(4).unwrap()).is_err());
        (0..3).for_each(|id| shared.receive(id, domain.buffer(4).unwrap()).unwrap());
        for (place, peer) in peers.iter().enumerate() {
            peer.queue_pair.send(9, &[place as u8; 4][..], SendOptions::default()).unwrap();
            let received = completions.wait(TIMEOUT).unwrap().expect("it arrives");
            assert_eq!(received.completion.id, place as u64);
            assert_eq!(received.completion.queue_pair, queue_pairs[place].id());
            assert_eq!(&received.buffers[0][..], &[place as u8; 4]);
            // Once, when one is left.
            let event_of_limit = AsyncEvent::SharedReceiveQueueLimit { token: 5 };
            if place == 1 {
                while rnic.events().next(Some(TIMEOUT)).expect("the limit is reported") != event_of_limit {}
            } else {
                assert!(
                    std::iter::from_fn(|| rnic.events().next(Some(Duration::ZERO)))
                        .all(|event| event != event_of_limit)
                );
            }
        }
    }
}
