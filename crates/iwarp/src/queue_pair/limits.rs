//! Queue pair limits, and their check when a request is posted.

use super::PostError;
use super::send_queue::expects_response;
use crate::work::{Data, Operation, Segment, SendRequest};

/// Capacity limits of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of requests in the send queue.
    pub send_queue: usize,
    /// Maximum number of segments of one request.
    pub segments: usize,
    /// Maximum inline bytes of one request.
    pub inline_bytes: usize,
    /// A Send longer than its receive waits for more memory
    /// ([`Machine::extend_receive`](super::Machine::extend_receive)); otherwise it ends the connection.
    pub receives_extend: bool,
    /// A Send without a receive waits for one in the queue pair's own queue
    /// ([`Machine::resume`](super::Machine::resume)); otherwise it ends the connection.
    pub receives_wait: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            send_queue: 256,
            segments: 16,
            inline_bytes: 512,
            receives_extend: false,
            receives_wait: false,
        }
    }
}

impl Limits {
    /// Checks whether a request is valid, regardless of free space in the queue
    /// and the state; `ord` is the maximum number of outstanding Reads and
    /// atomics, `immediate_data` whether Sends and Writes may have it.
    ///
    /// # Errors
    /// The request exceeds a limit.
    pub fn check(&self, request: &SendRequest, ord: u16, immediate_data: bool) -> Result<(), PostError> {
        if ord == 0 && expects_response(&request.operation) {
            return Err(PostError::NoReads);
        }
        match &request.operation {
            Operation::Send { data, .. } | Operation::Write { data, .. } => self.check_data(data),
            Operation::SendImmediate { .. } | Operation::WriteImmediate { .. } if !immediate_data => {
                Err(PostError::NoImmediateData)
            }
            Operation::SendImmediate { data, .. } | Operation::WriteImmediate { data, .. } => {
                self.check_data(data)
            }
            Operation::Immediate { .. } if immediate_data => Err(PostError::ImmediateAlone),
            Operation::FetchAdd { sink, .. } | Operation::CompareSwap { sink, .. } if sink.length != 8 => {
                Err(PostError::AtomicSink)
            }
            _ => Ok(()),
        }
    }

    fn check_data(&self, data: &Data) -> Result<(), PostError> {
        match data {
            Data::Inline(bytes) if bytes.len() > self.inline_bytes => Err(PostError::Inline),
            Data::Gather(segments) if segments.len() > self.segments => Err(PostError::Segments),
            Data::Gather(segments) if total(segments) > u64::from(u32::MAX) => Err(PostError::Length),
            _ => Ok(()),
        }
    }
}

fn total(segments: &[Segment]) -> u64 {
    segments.iter().map(|segment| u64::from(segment.length)).sum()
}
