//! The generation number of a namespace's IPv6 routes, and why non-initial namespaces must start far from the
//! initial one's number.
//!
//! The kernel gives each looked-up IPv6 route of a nexthop object the number that its namespace has at that
//! time (`rt6_info.sernum`), and a socket keeps the route while the numbers are equal (`rt6_is_valid`,
//! net/ipv6/route.c). A route change adds one, and the routes that were looked up before are moved to the
//! device `blackhole_netdev` (`dst_dev_put`), whose MTU is 68. That device belongs to the *initial*
//! namespace, so from then on a socket compares the number of its dead route with that of another namespace.
//! Where the two happen to be equal, the socket sends into the dead route (`Ip6FragFails` rises) until TCP
//! has timed out `tcp_retries1` times. A lab host or a container has made about as many route changes as a
//! small machine after its boot, so this is no rare accident. Neither number can be read from user space:
//! advancing a namespace's own number far, by a random number of steps, makes a collision improbable and
//! cannot rule it out.

use clearstream_schema::{
    prefix::Prefix,
    routing::{RouteAction, RouteEntry},
};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;

use crate::{NetlinkError, RouteSocket, names::Names, routes};

/// A table without a rule: its routes match no packet.
const TABLE: u32 = 0x4353_4947;
/// Discard-only (RFC 6666).
const DESTINATION: &str = "100::/128";

impl RouteSocket {
    /// Adds `steps` to the generation number of the namespace's IPv6 routes: a route in a dedicated table is
    /// replaced that many times, and removed. Sockets repeat their route lookups, as after any route
    /// change.
    ///
    /// # Errors
    /// Errors of the kernel, for instance without IPv6.
    pub fn advance_ipv6_generation(&mut self, steps: u32) -> Result<(), NetlinkError> {
        let destination: Prefix =
            DESTINATION.parse().map_err(|error| NetlinkError::Garbled(format!("{DESTINATION}: {error}")))?;
        let route = RouteEntry {
            destination,
            table: TABLE,
            metric: 0,
            action: RouteAction::Unreachable,
            source: None,
            mtu: None,
            protocol: 0,
            place: None,
        };
        let message = RouteNetlinkMessage::NewRoute(routes::written(&route, &Names::default())?);
        for _ in 0..steps {
            let action = || "advance the generation of IPv6 routes".to_owned();
            self.change(message.clone(), NLM_F_CREATE | NLM_F_REPLACE, action)?;
        }
        self.remove_route(&route)
    }
}
