//! Peer of timed verbs calls: accepts, receives Sends, and grants new ones.
//!
//! iWARP has no "receiver not ready": a Send without a receive ends the
//! connection. So the peer acknowledges every [`GRANT_INTERVAL`] Sends by
//! immediate data, and the client posts no more before that.

use std::{sync::atomic::AtomicBool, time::Duration};

use clearstream_iwarp::{
    verbs::{Access, Incoming, Region},
    work::{Completed, Operation, ReceiveRequest, SendRequest},
};
use clearstream_schema::rdma::RdmaConfig;

use crate::{
    blocking::{BlockingQueuePair, DEPTH, Wait},
    error::RdmaError,
    negotiation::accept_options,
    silence::{FIRST_MESSAGE_LIMIT, IDLE_LIMIT},
};

/// Maximum message size.
pub(crate) const MESSAGE_BYTES: u32 = 4096;
/// Number of Sends granted at a time: fewer than the posted receives.
pub(crate) const GRANT_INTERVAL: u32 = 8;
/// Maximum wait for the graceful close of the connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves one connection until the client closes it.
///
/// # Errors
/// A client that violates the protocol, or a lost connection.
pub(crate) fn serve(request: Incoming, stop: &AtomicBool) -> Result<(), RdmaError> {
    let mut queue_pair = BlockingQueuePair::open()?;
    let memory = Region::new(queue_pair.domain(), (DEPTH * MESSAGE_BYTES) as usize, Access::LOCAL_WRITE)?;
    let post = |queue_pair: &BlockingQueuePair, slot: u64| {
        let segment = memory.segment(slot as usize * MESSAGE_BYTES as usize, MESSAGE_BYTES);
        queue_pair.receive(ReceiveRequest { id: slot, segments: [segment].into_iter().collect() })
    };
    for slot in 0..u64::from(DEPTH) {
        post(&queue_pair, slot)?;
    }
    let requested = RdmaConfig { no_crc: !request.crc, markers: request.markers, ..RdmaConfig::default() };
    queue_pair.accept(request, &accept_options(&requested))?;
    let mut received = 0u32;
    loop {
        match queue_pair.wait(Some(if received == 0 { FIRST_MESSAGE_LIMIT } else { IDLE_LIMIT }), stop)? {
            Wait::Completed(done) if done.completed == Completed::Receive => {
                post(&queue_pair, done.id)?;
                received = received.wrapping_add(1);
                if received.is_multiple_of(GRANT_INTERVAL) {
                    let operation = Operation::Immediate { data: [0; 8], solicited: false };
                    queue_pair.send(SendRequest { id: 0, operation, signaled: true, fence: false })?;
                }
            }
            Wait::Completed(_) => {}
            Wait::Closed(closure) if closure.graceful => break,
            Wait::Closed(closure) => return Err(queue_pair.lost(closure.reason)),
            Wait::TimedOut => return Err(queue_pair.lost("no call for too long")),
        }
    }
    queue_pair.close(CLOSE_TIMEOUT);
    Ok(())
}
