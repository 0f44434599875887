//! Protection domains.

use std::sync::Arc;

use crate::{
    rnic::{Rnic, device::Device},
    stag::DomainId,
};

/// A protection domain: queue pairs reach only memory and windows of their
/// own. Clones name the same one; it ends with its last object.
#[derive(Clone, Debug)]
pub struct ProtectionDomain {
    pub(crate) shared: Arc<Domain>,
}

#[derive(Debug)]
pub(crate) struct Domain {
    pub(crate) id: DomainId,
    pub(crate) device: Arc<Device>,
}

impl ProtectionDomain {
    /// A new domain.
    #[must_use]
    pub fn new(rnic: &Rnic) -> Self {
        let id = rnic.device.memory.allocate_domain();
        Self { shared: Arc::new(Domain { id, device: rnic.device.clone() }) }
    }

    /// Its number in the memory table.
    #[must_use]
    pub fn id(&self) -> DomainId {
        self.shared.id
    }

    /// The RNIC that it belongs to.
    #[must_use]
    pub fn rnic(&self) -> Rnic {
        Rnic { device: self.shared.device.clone() }
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // Tags that were registered by number and never given back keep the
        // number of the domain in use; nobody can reach them any more.
        let _ = self.device.memory.deallocate_domain(self.id);
    }
}
