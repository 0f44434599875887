//! Ranks as threads of this process, joined by channels.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Sender, channel},
    },
    thread,
    time::Duration,
};

use crate::{Message, RankError, Tag, World, inbox::Inbox};

/// No rank was lost.
const NONE: usize = usize::MAX;

struct ThreadRank {
    rank: usize,
    to: Vec<Sender<(Tag, Message)>>,
    inbox: Inbox,
    lost: Arc<AtomicUsize>,
}

/// Names the rank that panics, so that the others end.
struct Alive {
    rank: usize,
    lost: Arc<AtomicUsize>,
}

impl Drop for Alive {
    fn drop(&mut self) {
        if thread::panicking() {
            self.lost.store(self.rank, Ordering::Release);
        }
    }
}

/// Runs `work` as `count` ranks, each a thread; their results in the order of ranks.
///
/// # Errors
/// [`RankError::Lost`] names the rank that panicked, [`RankError::Thread`] one that could not be started.
pub fn threads<T: Send>(
    count: usize,
    work: impl Fn(&mut dyn World) -> T + Sync,
) -> Result<Vec<T>, RankError> {
    let lost = Arc::new(AtomicUsize::new(NONE));
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..count).map(|_| channel()).unzip();
    let results: Vec<io::Result<thread::Result<T>>> = thread::scope(|scope| {
        let threads: Vec<_> = receivers
            .into_iter()
            .enumerate()
            .map(|(rank, from)| {
                let (lost, to, work) = (Arc::clone(&lost), senders.clone(), &work);
                let all = Arc::clone(&lost);
                let started = thread::Builder::new().spawn_scoped(scope, move || {
                    let _alive = Alive { rank, lost: Arc::clone(&lost) };
                    work(&mut ThreadRank { rank, to, inbox: Inbox::new(from), lost })
                });
                // Those that did start end with it.
                started.inspect_err(|_| all.store(rank, Ordering::Release))
            })
            .collect();
        threads.into_iter().map(|started| started.map(thread::ScopedJoinHandle::join)).collect()
    });
    // What did not start is the reason for what others saw.
    let mut joined = Vec::with_capacity(count);
    for (rank, result) in results.into_iter().enumerate() {
        joined.push((rank, result.map_err(|error| RankError::Thread { rank, error })?));
    }
    joined.into_iter().map(|(rank, result)| result.map_err(|_| RankError::Lost { rank })).collect()
}

impl ThreadRank {
    fn check(&self) -> Result<(), RankError> {
        match self.lost.load(Ordering::Acquire) {
            NONE => Ok(()),
            rank => Err(RankError::Lost { rank }),
        }
    }
}

/// Their [`World::transport`].
pub const TRANSPORT: &str = "threads";

impl World for ThreadRank {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.to.len()
    }

    fn host(&self) -> &str {
        "localhost"
    }

    fn transport(&self) -> &str {
        TRANSPORT
    }

    fn send(&mut self, to: usize, tag: Tag, bytes: Vec<u8>) -> Result<(), RankError> {
        let message = Message { from: self.rank, bytes };
        self.to[to].send((tag, message)).map_err(|_| RankError::Lost { rank: to })
    }

    fn receive(&mut self, tag: Tag) -> Result<Option<Message>, RankError> {
        match self.inbox.take(tag) {
            Some(message) => Ok(Some(message)),
            None => self.check().map(|()| None),
        }
    }

    fn wait(&mut self, limit: Duration) {
        self.inbox.wait(limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_one_tag_arrive_in_order_and_others_are_kept() {
        let results = threads(3, |world| {
            let (rank, size) = (world.rank(), world.size());
            for round in 0..10_u8 {
                for to in 0..size {
                    world.send(to, Tag(round % 2), vec![rank as u8, round]).unwrap();
                }
            }
            let mut seen = vec![Vec::new(); size];
            for tag in [1, 0] {
                for _ in 0..5 * size {
                    let message = world.receive_next(Tag(tag)).unwrap();
                    assert_eq!(usize::from(message.bytes[0]), message.from);
                    seen[message.from].push(message.bytes[1]);
                }
            }
            seen
        });
        for seen in results.unwrap().into_iter().flatten() {
            assert_eq!(seen, [1, 3, 5, 7, 9, 0, 2, 4, 6, 8]);
        }
    }

    #[test]
    fn collective_operations_combine_all_ranks() {
        let results = threads(4, |world| {
            let rank = world.rank() as u64;
            let sums = world.reduce(&[rank, 10 * rank], |one, other| one + other).unwrap();
            let most = world.reduce(&[rank], u64::max).unwrap();
            world.barrier().unwrap();
            let gathered = world.gather(vec![rank as u8; rank as usize]).unwrap();
            let broadcast = world.broadcast(if rank == 0 { b"hello".to_vec() } else { Vec::new() }).unwrap();
            (sums, most, gathered, broadcast)
        });
        for (rank, (sums, most, gathered, broadcast)) in results.unwrap().into_iter().enumerate() {
            assert_eq!((sums, most), (vec![6, 60], vec![3]));
            let expected: &[Vec<u8>] = &[vec![], vec![1], vec![2, 2], vec![3, 3, 3]];
            assert_eq!(gathered, if rank == 0 { expected } else { &[] });
            assert_eq!(broadcast, b"hello");
        }
    }

    #[test]
    fn a_rank_that_panics_ends_the_others_and_is_named() {
        let result = threads(3, |world| {
            assert_ne!(world.rank(), 1, "on purpose");
            let error = world.receive_next(Tag(0)).unwrap_err();
            assert!(matches!(error, RankError::Lost { rank: 1 }), "{error}");
        });
        assert!(matches!(result, Err(RankError::Lost { rank: 1 })));
    }
}
