//! The addresses that a plan's routes depend on. They belong to whoever manages the interface, but for those that the plan
//! itself added.

use clearstream_netlink::NetlinkError;
use clearstream_schema::{prefix::Prefix, routing::HostRouting};

use super::{Absence, Changes, KernelRoutes, Leads, Missing};

/// An address that a plan added to an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddedAddress {
    /// The interface.
    pub interface: String,
    /// The address with its length.
    pub prefix: Prefix,
    /// Protocol number of its owner.
    pub protocol: u8,
}

impl KernelRoutes {
    /// Addresses of the plan that are not there; of these, those that `added` names are made again.
    pub(in super::super) fn apply_addresses(
        &mut self,
        plan: &HostRouting,
        added: impl FnOnce() -> Vec<AddedAddress>,
    ) -> Result<Changes, NetlinkError> {
        let live = self.socket.all_addresses()?;
        let mut changes = Changes::default();
        let lost: Vec<(&str, Prefix)> = (plan.interfaces.iter())
            .flat_map(|interface| {
                interface.addresses.iter().map(|address| (interface.name.as_str(), address.value))
            })
            .filter(|(interface, prefix)| {
                !live.iter().any(|live| live.interface == *interface && live.prefix.address == prefix.address)
            })
            .collect();
        if lost.is_empty() {
            return Ok(changes);
        }
        let added = added();
        for (interface, prefix) in lost {
            let leads = Leads::FromAddress(prefix.address);
            let name = format!("address {} of {interface}", prefix.address);
            let ours = added.iter().find(|added| added.interface == interface && added.prefix == prefix);
            match ours {
                Some(ours) => {
                    let made = self.socket.add_owned_address(interface, prefix, ours.protocol);
                    changes.note(name, leads, Some(made));
                }
                None => changes.missing.push(Missing { name, leads, why: Absence::Others }),
            }
        }
        Ok(changes)
    }
}
