//! Many queue pairs on one completion queue and one engine, and fairness among
//! them.

use clearstream_iwarp::{
    verbs::{
        AcceptOptions, CompletionQueue, ConnectOptions, ProtectionDomain, QueuePair, QueuePairOptions, Rnic,
        RnicOptions, SendOptions,
    },
    work::Completed,
};

use crate::rnic::sides::{Side, all_modes, join, pattern, until};

#[test]
fn a_bulk_sender_does_not_starve_its_neighbours() {
    for options in all_modes() {
        // An engine can finish the bulk before this thread has posted the rest:
        // then there was no competition, and the test is retried.
        let mut ahead = Vec::new();
        while ahead.len() < 5 && ahead.last().is_none_or(|large| *large > 4) {
            ahead.push(large_before_the_last_small(&options));
        }
        assert!(ahead.last().is_some_and(|large| *large <= 4), "small messages waited: {ahead:?} of 8");
    }
}

/// One connection sends eight large messages, seven others a small one each,
/// posted later: returns how many large ones arrived before the last small one.
fn large_before_the_last_small(options: &RnicOptions) -> usize {
    let rnic = Rnic::open(options.clone()).unwrap();
    let domain = ProtectionDomain::new(&rnic);
    let completions = CompletionQueue::new(&rnic, 1 << 12).unwrap();
    let queue_pairs: Vec<_> =
        (0..8).map(|_| QueuePair::new(&domain, &QueuePairOptions::new(&completions)).unwrap()).collect();
    let peer_rnic = Rnic::open(options.clone()).unwrap();
    let peers: Vec<_> = queue_pairs
        .iter()
        .map(|queue_pair| {
            let peer = Side::of(&peer_rnic);
            join(
                &peer.queue_pair,
                &ConnectOptions::default(),
                (&rnic, queue_pair),
                &AcceptOptions::default(),
            );
            peer
        })
        .collect();
    // The first sends 32 MiB, the others one message each, later.
    let bulk = pattern(4 << 20, 1);
    for id in 0..8 {
        queue_pairs[0].receive(id, domain.buffer(bulk.len()).unwrap()).unwrap();
        let mut buffer = peers[0].domain.buffer(bulk.len()).unwrap();
        buffer.copy_from_slice(&bulk);
        peers[0]
            .queue_pair
            .send(id, buffer, SendOptions { signaled: false, ..SendOptions::default() })
            .unwrap();
    }
    for (queue_pair, peer) in queue_pairs.iter().zip(&peers).skip(1) {
        queue_pair.receive(100, domain.buffer(4).unwrap()).unwrap();
        peer.queue_pair.send(1, &b"late"[..], SendOptions::default()).unwrap();
    }
    let (mut large, mut small, mut large_before_last_small) = (0, 0, 0);
    until("everything arrives", || {
        peers.iter().for_each(|peer| _ = peer.completions.progress());
        let Some(finished) = completions.poll().unwrap() else { return false };
        if finished.completion.completed != Completed::Receive {
            return false;
        }
        if finished.completion.id == 100 {
            small += 1;
            large_before_last_small = large;
        } else {
            assert!(finished.buffers[0][..] == bulk[..]);
            large += 1;
        }
        (large, small) == (8, 7)
    });
    large_before_last_small
}
