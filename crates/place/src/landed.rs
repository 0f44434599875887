//! The proof that steered flows landed where they should: the socket's own
//! `SO_INCOMING_NAPI_ID` against the NAPI instances of the queues, or, where
//! these are not known, its `SO_INCOMING_CPU` against the queues' interrupts.

use crate::document::{LandedFlow, SteeredFlow};
use clearstream_schema::host::{HostReport, Nic};

use crate::steering::queue_core;

/// A receiver's socket about its last packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// `SO_INCOMING_CPU`.
    pub core: Option<u32>,
    /// `SO_INCOMING_NAPI_ID`.
    pub napi_id: Option<u32>,
}

/// Compares the request with the observation.
pub fn landed(requested: &SteeredFlow, seen: Seen, host: &HostReport, nic: &Nic) -> LandedFlow {
    let mut landed = LandedFlow {
        flow: requested.flow,
        asked_queue: requested.receive_queue,
        effective_queue: None,
        effective_core: seen.core,
        confirmed: None,
        evidence: String::new(),
    };
    let by_napi = seen.napi_id.and_then(|id| {
        let queue = nic.receive_napi.iter().find(|(_, napi)| **napi == id).map(|(queue, _)| *queue);
        queue.map(|queue| (id, queue))
    });
    if let Some((id, queue)) = by_napi {
        landed.effective_queue = Some(queue);
        landed.confirmed = Some(Some(queue) == requested.receive_queue);
        landed.evidence = format!("SO_INCOMING_NAPI_ID {id} is queue {queue}");
        return landed;
    }
    let Some(core) = seen.core else {
        landed.evidence = "the receiving socket reported neither NAPI instance nor core".to_owned();
        return landed;
    };
    let queues: Vec<u32> =
        (0..nic.receive_queue_count).filter(|queue| queue_core(host, nic, *queue) == Some(core)).collect();
    match queues.as_slice() {
        [queue] => {
            landed.effective_queue = Some(*queue);
            landed.confirmed = Some(Some(*queue) == requested.receive_queue);
            landed.evidence = format!("SO_INCOMING_CPU {core} takes the interrupts of queue {queue} alone");
        }
        [] if requested.receive_core.is_some() => {
            landed.confirmed = Some(false);
            landed.evidence = format!(
                "SO_INCOMING_CPU is {core}, where no queue of {} has its interrupts: RPS, or a changed affinity?",
                nic.name
            );
        }
        several => {
            // The right core among several queues proves nothing, a wrong one does.
            let possible = requested.receive_queue.is_some_and(|queue| several.contains(&queue));
            landed.confirmed = (!possible && !several.is_empty()).then_some(false);
            landed.evidence = format!(
                "SO_INCOMING_CPU {core} does not identify the queue: {} queues have their interrupts there",
                several.len()
            );
        }
    }
    landed
}
