//! Immediate data of messages: what each one has, and whether it arrived.
//!
//! Every message has the number that it has on its queue pair, so that one that
//! is lost, repeated or mixed up with another is seen, and which end sent it.

use clearstream_iwarp::work::{Completed, Completion};
use clearstream_schema::rdma::RdmaOperation;

use crate::data_queue_pairs::Role;

/// Odd, so that no two numbers are multiplied to the same one, and with ones in
/// all four bytes.
const SPREAD: u32 = 0x9e37_79b1;

/// Numbers of the messages of all queue pairs, over all runs.
#[derive(Debug)]
pub(super) struct Immediates {
    role: Role,
    /// How the receive of a message completes.
    completed: Completed,
    sent: Vec<u32>,
    received: Vec<u32>,
    /// Messages of the run that came with other immediate data.
    mismatches: u64,
}

impl Immediates {
    /// Before the first message; `None` where messages have none.
    pub(super) fn new(role: Role, operation: RdmaOperation, count: usize) -> Option<Self> {
        let completed = match operation {
            RdmaOperation::Send => Completed::Receive,
            RdmaOperation::Write => Completed::ReceiveWritten,
            RdmaOperation::Read => return None,
        };
        Some(Self { role, completed, sent: vec![0; count], received: vec![0; count], mismatches: 0 })
    }

    pub(super) fn begin(&mut self) {
        self.mismatches = 0;
    }

    /// What the next message of a queue pair has.
    pub(super) fn next(&mut self, qp: usize) -> [u8; 4] {
        let number = self.sent[qp];
        self.sent[qp] = number.wrapping_add(1);
        of_message(self.role, qp, number)
    }

    /// Compares what came with the next message of a queue pair.
    pub(super) fn received(&mut self, qp: usize, completion: &Completion) {
        let number = self.received[qp];
        self.received[qp] = number.wrapping_add(1);
        let expected = of_message(self.role.other(), qp, number);
        let is_same = completion.completed == self.completed && carried(completion) == Some(expected);
        self.mismatches += u64::from(!is_same);
    }

    pub(super) fn mismatches(&self) -> u64 {
        self.mismatches
    }
}

/// The four bytes that came with a Send or a Write.
pub(super) fn carried(completion: &Completion) -> Option<[u8; 4]> {
    completion.immediate.as_ref().and_then(|bytes| bytes.last_chunk()).copied()
}

fn of_message(role: Role, qp: usize, number: u32) -> [u8; 4] {
    let begin = (role as u32) << 31 | (qp as u32) << 16;
    begin.wrapping_add(number).wrapping_mul(SPREAD).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completion(completed: Completed, immediate: [u8; 4]) -> Completion {
        let [a, b, c, d] = immediate;
        Completion { completed, immediate: Some([0, 0, 0, 2, a, b, c, d]), ..Completion::EMPTY }
    }

    #[test]
    fn a_message_that_is_lost_repeated_or_of_another_queue_pair_is_seen() {
        let ends = || {
            let end = |role| Immediates::new(role, RdmaOperation::Send, 2);
            end(Role::Client).zip(end(Role::Server))
        };
        // Which of the client's messages arrive on queue pair 0, and how many of them differ.
        let differ = |arrive: &dyn Fn(&mut Immediates) -> Vec<[u8; 4]>| {
            let (mut client, mut server) = ends()?;
            for immediate in arrive(&mut client) {
                let message = completion(Completed::Receive, immediate);
                server.received(0, &message);
            }
            Some(server.mismatches())
        };
        assert_eq!(differ(&|client| (0..1000).map(|_| client.next(0)).collect()), Some(0));
        assert_eq!(differ(&|client| (0..3).map(|_| client.next(0)).skip(1).collect()), Some(2));
        assert_eq!(differ(&|client| vec![client.next(0); 2]), Some(1));
        assert_eq!(differ(&|client| vec![client.next(1)]), Some(1));
        assert_eq!(differ(&|_| vec![[0; 4]; 3]), Some(2), "the first one is zero");
    }

    #[test]
    fn messages_of_another_operation_or_without_immediate_data_differ() {
        let server = Immediates::new(Role::Server, RdmaOperation::Write, 1);
        let differ = server.map(|mut server| {
            let first = of_message(Role::Client, 0, 0);
            server.received(0, &completion(Completed::ReceiveWritten, first));
            server.received(0, &completion(Completed::Receive, of_message(Role::Client, 0, 1)));
            server.received(0, &Completion { completed: Completed::ReceiveWritten, ..Completion::EMPTY });
            server.mismatches()
        });
        assert_eq!(differ, Some(2));
        assert!(Immediates::new(Role::Client, RdmaOperation::Read, 1).is_none());
    }
}
