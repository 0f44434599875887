//! Receive queues that several queue pairs share.

use crate::{
    rnic::{ListError, ProtectionDomain, VerbsError},
    work::ReceiveRequest,
};

/// A shared receive queue. Clones name the same one.
#[derive(Clone, Debug)]
pub struct SharedReceiveQueue {}

impl SharedReceiveQueue {
    /// A queue for `depth` receives; its events carry `token`.
    pub fn new(domain: &ProtectionDomain, depth: u32, token: u64) -> Result<Self, VerbsError> {
        let _ = (domain, depth, token);
        Ok(Self {})
    }

    /// Posts receives in order. On an error those before it are posted.
    pub fn post(&self, requests: impl IntoIterator<Item = ReceiveRequest>) -> Result<(), ListError> {
        let _ = requests.into_iter();
        Ok(())
    }

    /// Raises [`AsyncEvent::SharedReceiveQueueLimit`](crate::rnic::AsyncEvent)
    /// once fewer than `limit` receives are posted; 0 is off.
    pub fn set_limit(&self, limit: u32) {
        let _ = limit;
    }
}
