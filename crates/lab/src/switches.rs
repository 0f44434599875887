//! Switches: a bridge in a namespace of its own. The hosts' interfaces are
//! veth, whose peers are its ports.

use std::path::Path;

use clearstream_schema::lab::LabSwitch;

use crate::{LabError, links, node::Node};

/// The bridge inside the switch's namespace.
const BRIDGE: &str = "bridge";

/// A switch; dropping it removes the namespace.
#[derive(Debug)]
pub(crate) struct Switch {
    node: Node,
}

impl Switch {
    /// Process that holds its namespaces.
    pub(crate) fn pid(&self) -> u32 {
        self.node.pid()
    }

    /// Creates the switch and its ports; the hosts' ends are still down.
    pub(crate) fn start(switch: &LabSwitch, hosts_file: &Path, nodes: &mut [Node]) -> Result<Self, LabError> {
        let mut node = Node::start(&switch.name, hosts_file)?;
        // It is no host: IPv6 is disabled so that it sends nothing itself.
        let disable_ipv6 = ["net.ipv6.conf.all.disable_ipv6", "net.ipv6.conf.default.disable_ipv6"];
        node.write_known_sysctls(&disable_ipv6.map(|key| (key, "1")))?;
        node.network(|netlink| netlink.add_bridge(BRIDGE))?;
        let own = node.namespaces.net().try_clone();
        let own = own.map_err(LabError::system(format!("keep the namespace of {} open", switch.name)))?;
        for (number, end) in switch.ends.iter().enumerate() {
            let port = port_name(number);
            let numbers = links::interface_numbers();
            links::node_of(nodes, end)?
                .network(|netlink| netlink.add_veth_numbered(&end.interface, &port, &own, numbers))?;
            node.network(|netlink| netlink.set_bridge(&port, Some(BRIDGE)))?;
            node.network(|netlink| netlink.set_up(&port, true))?;
            links::set_gro(end, switch.gro, nodes)?;
        }
        let mut made = Self { node };
        made.set_mtu(switch.ends.len(), switch.mtu)?;
        made.node.network(|netlink| netlink.set_up(BRIDGE, true))?;
        Ok(made)
    }

    /// Sets the MTU, in bytes, of the ports and of the bridge.
    pub(crate) fn set_mtu(&mut self, port_count: usize, mtu: u32) -> Result<(), LabError> {
        for number in 0..port_count {
            self.node.network(|netlink| netlink.set_mtu(&port_name(number), mtu))?;
        }
        self.node.network(|netlink| netlink.set_mtu(BRIDGE, mtu))
    }

    /// Waits until a port forwards (`BR_STATE_FORWARDING`, linux/if_bridge.h).
    pub(crate) fn wait_until_forwarding(&self, number: usize) -> Result<(), LabError> {
        self.node.wait_for(&port_name(number), "brport/state", "3")
    }

    /// Isolates a port or joins it again. The port stays up, and so the host
    /// behind it keeps its carrier.
    pub(crate) fn set_joined(&mut self, number: usize, joined: bool) -> Result<(), LabError> {
        self.node.network(|netlink| netlink.set_bridge(&port_name(number), joined.then_some(BRIDGE)))
    }

    /// Sets a port up or down, and so the carrier of the host behind it.
    pub(crate) fn set_up(&mut self, number: usize, up: bool) -> Result<(), LabError> {
        self.node.network(|netlink| netlink.set_up(&port_name(number), up))
    }
}

/// Returns the name of a port: `port1` is that of the first end.
fn port_name(number: usize) -> String {
    format!("port{}", number + 1)
}
