//! Bridges: learning switches with interfaces as ports.

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::{
    RouteNetlinkMessage,
    link::{InfoBridge, InfoData, InfoKind, LinkAttribute, LinkInfo, LinkMessage},
};

use crate::{NetlinkError, RouteSocket};

impl RouteSocket {
    /// Creates a bridge that learns addresses and floods unknown destinations. Multicast snooping is off, so
    /// that neighbour discovery (RFC 4861) works without a querier, and so is the spanning tree protocol, so
    /// that a port forwards as soon as it is up.
    pub fn add_bridge(&mut self, name: &str) -> Result<(), NetlinkError> {
        let mut message = LinkMessage::default();
        message.attributes = vec![
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Bridge),
                LinkInfo::Data(InfoData::Bridge(vec![InfoBridge::MulticastSnooping(false)])),
            ]),
        ];
        self.change(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL, || {
            format!("create the bridge {name}")
        })
    }

    /// Makes an interface a port of a bridge; `None` removes it: the interface stays up, and packets arriving
    /// on it are not forwarded.
    pub fn set_bridge(&mut self, port: &str, bridge: Option<&str>) -> Result<(), NetlinkError> {
        let index = bridge.map_or(Ok(0), |bridge| self.interface(bridge).map(|found| found.index))?;
        self.set_link(port, None, vec![LinkAttribute::Controller(index)], || match bridge {
            Some(bridge) => format!("make {port} a port of {bridge}"),
            None => format!("remove the port {port} from its bridge"),
        })
    }
}
