//! Protection domains.

use std::sync::Arc;

use crate::{
    rnic::{Rnic, device::Device},
    stag::DomainId,
};

/// A protection domain (PD): queue pairs access only memory and windows of
/// their own. Clones refer to the same domain; it is deallocated with its last
/// object.
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
    /// Allocates a domain.
    #[must_use]
    pub fn new(rnic: &Rnic) -> Self {
        let id = rnic.device.memory.allocate_domain();
        Self { shared: Arc::new(Domain { id, device: rnic.device.clone() }) }
    }

    /// Returns its identifier in the memory table.
    #[must_use]
    pub fn id(&self) -> DomainId {
        self.shared.id
    }

    /// Returns its RNIC.
    #[must_use]
    pub fn rnic(&self) -> Rnic {
        Rnic { device: self.shared.device.clone() }
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // STags registered through the raw interface and never deregistered
        // keep the domain allocated; no queue pair can use them any more.
        let _ = self.device.memory.deallocate_domain(self.id);
    }
}
