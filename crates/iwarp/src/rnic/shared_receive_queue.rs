//! Shared receive queues, and posting of request lists.

use std::sync::{Arc, Mutex};

use crate::{
    queue_pair::{PostError, ReceiveQueue},
    rnic::{ListError, ProtectionDomain, VerbsError, device::Attributes, domain::Domain, locked},
    work::ReceiveRequest,
};

/// A shared receive queue (SRQ). Clones refer to the same queue.
#[derive(Clone, Debug)]
pub struct SharedReceiveQueue {
    pub(super) domain: Arc<Domain>,
    pub(super) token: u64,
    pub(super) queue: Arc<Mutex<ReceiveQueue>>,
}

impl SharedReceiveQueue {
    /// Creates a queue for `depth` receives; `token` identifies it in events.
    ///
    /// # Errors
    /// The depth is out of range.
    pub fn new(domain: &ProtectionDomain, depth: u32, token: u64) -> Result<Self, VerbsError> {
        let attributes = domain.rnic().attributes();
        Attributes::check("depth of a shared receive queue", depth, attributes.max_depth)?;
        let queue = ReceiveQueue::new(depth as usize, attributes.max_segments as usize);
        Ok(Self { domain: domain.shared.clone(), token, queue: Arc::new(Mutex::new(queue)) })
    }

    /// Posts receives in order.
    ///
    /// # Errors
    /// The first rejected request; those before it are posted.
    pub fn post(&self, requests: impl IntoIterator<Item = ReceiveRequest>) -> Result<(), ListError> {
        let mut queue = locked(&self.queue);
        post_each(requests, |request| queue.post(request))
    }

    /// Requests one [`SharedReceiveQueueLimit`](crate::rnic::AsyncEvent) as soon
    /// as fewer than `limit` receives are left; 0 requests none.
    pub fn set_limit(&self, limit: u32) {
        locked(&self.queue).arm(limit as usize);
    }

    /// Returns the number of posted receives.
    #[must_use]
    pub fn len(&self) -> usize {
        locked(&self.queue).len()
    }

    /// Whether no receive is posted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Posts requests in order, up to the first that is rejected.
pub(super) fn post_each<T>(
    requests: impl IntoIterator<Item = T>,
    mut post: impl FnMut(T) -> Result<(), PostError>,
) -> Result<(), ListError> {
    for (posted, request) in requests.into_iter().enumerate() {
        post(request).map_err(|error| ListError { posted, error })?;
    }
    Ok(())
}
