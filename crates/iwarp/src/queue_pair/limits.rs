//! How much a queue pair takes, and what it refuses when it is posted.

use super::PostError;
use super::send_queue::answered;
use crate::work::{Data, Operation, Segment, SendRequest};

/// How much a queue pair takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests in the send queue.
    pub send_queue: usize,
    /// Segments of one request.
    pub segments: usize,
    /// Inline bytes of one request.
    pub inline_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { send_queue: 256, segments: 16, inline_bytes: 512 }
    }
}

impl Limits {
    /// Whether a request can be taken at all, apart from room in the queue and
    /// the state; `ord` is how many Reads and atomics may be outstanding.
    ///
    /// # Errors
    /// Too much of something.
    pub fn check(&self, request: &SendRequest, ord: u16) -> Result<(), PostError> {
        if ord == 0 && answered(&request.operation) {
            return Err(PostError::NoReads);
        }
        match &request.operation {
            Operation::Send { data, .. } | Operation::Write { data, .. } => self.check_data(data),
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
