//! `ip route add ...` and the lines of `ip route show` (ip-route(8)).

use std::net::IpAddr;

use clearstream_schema::{
    prefix::Prefix,
    routing::{Hop, MAIN_TABLE, RouteAction, RouteEntry, files::Loader},
};

use super::{Context, Cursor, ParseError, Token, unfit};
use crate::read::{gathering::Gathering, values};

/// Number of the `local` table (rtnetlink(7), `RT_TABLE_LOCAL`).
const LOCAL_TABLE: u32 = 255;
/// Number of the kernel as a route's owner (rtnetlink(7), `RTPROT_KERNEL`).
const KERNEL: u8 = 2;

/// A route as it is put together.
#[derive(Default)]
struct Parts<'a> {
    /// Type, unless it is `unicast`.
    kind: Option<&'a str>,
    default: bool,
    destination: Option<Prefix>,
    table: Option<u32>,
    metric: u32,
    protocol: u8,
    source: Option<IpAddr>,
    mtu: Option<u32>,
    nexthop: Option<u32>,
    via: Option<IpAddr>,
    device: Option<String>,
    weight: Option<u16>,
    hops: Vec<Hop>,
    is_on_link: bool,
    on_link: Vec<(IpAddr, Option<String>)>,
    /// What makes it a route for some packets only, or one by which they go is not held here.
    unknown: Option<String>,
    is_of_unknown_table: bool,
    left_out: Vec<(u32, String)>,
}

/// What arguments say of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ParsedRoute {
    pub(crate) value: RouteEntry,
    /// Why the route is not known completely: it is held as a destination alone.
    unknown: Option<String>,
    is_of_unknown_table: bool,
    /// Gateways that it makes neighbours.
    on_link: Vec<(IpAddr, Option<String>)>,
    /// Next hops that were printed beside the id of a nexthop object.
    printed: Option<RouteAction>,
    left_out: Vec<(u32, String)>,
}

impl ParsedRoute {
    /// Adds the route and what it says of gateways; `replaces` an equal one.
    pub(crate) fn gather(self, file: &str, replaces: bool, gathering: &mut Gathering) {
        // Of what a kernel printed nothing is to be written again.
        if gathering.loader != Loader::Kernel {
            gathering.left_out(file, &self.left_out);
        }
        if let Some(reason) = &self.unknown {
            let line = self.value.place.as_ref().and_then(|place| place.line).unwrap_or(1);
            gathering.unread(file, line, &self.value.destination.to_string(), reason);
            let table = (!self.is_of_unknown_table).then_some(self.value.table);
            return gathering.unknown_route(table, Some(self.value.destination), reason);
        }
        for (via, interface) in &self.on_link {
            gathering.on_link(*via, interface.as_deref());
        }
        if let (Some(printed), Some(place)) = (self.printed, self.value.place.clone()) {
            let place = gathering.loaded(place);
            gathering.printed_hops.insert(place, printed);
        }
        if replaces { gathering.replace_route(self.value) } else { gathering.route(self.value) }
    }
}

/// Reads the arguments of `ip route add`, or a line of `ip route show`.
/// Returns `None` for routes that the kernel creates for an address.
pub(crate) fn route(tokens: &[Token<'_>], context: Context<'_>) -> Result<Option<ParsedRoute>, ParseError> {
    let mut parts = Parts::default();
    let mut rest = tokens;
    // `ip -Numeric route show` prints types as numbers before the destination.
    if let [first, next, ..] = tokens
        && let Some(kind) = type_by_number(first.text)
        && (next.text == "default" || values::prefix(next.text).is_some())
    {
        parts.kind = Some(kind).filter(|kind| *kind != "unicast");
        rest = tokens.get(1..).unwrap_or_default();
    }
    let mut cursor = Cursor::new(rest);
    while let Some(token) = cursor.next() {
        if token.text == "nexthop" {
            parts.hop(&mut cursor, token, context)?;
        } else if token.text == "nh_info" {
            // `ip -details route show`: the object again; its next hops follow.
            while cursor.peek().is_some_and(|token| token.text != "nexthop") {
                cursor.next();
            }
        } else {
            parts.argument(token, &mut cursor, context)?;
        }
    }
    let line = tokens.first().map_or(1, |token| token.line);
    if parts.protocol == KERNEL || parts.table == Some(LOCAL_TABLE) {
        return Ok(None);
    }
    parts.finish(line, context).map(Some)
}

impl<'a> Parts<'a> {
    /// Reads one option with its value.
    fn argument(
        &mut self,
        token: Token<'a>,
        cursor: &mut Cursor<'_, '_>,
        context: Context<'_>,
    ) -> Result<(), ParseError> {
        let name = full_name(token.text);
        match name {
            "onlink" => self.is_on_link = true,
            "unicast" | "linkdown" | "dead" | "offload" | "trap" | "offload_failed" | "rt_offload"
            | "rt_trap" | "cache" => {}
            "blackhole" | "unreachable" | "prohibit" | "throw" | "local" | "broadcast" | "multicast"
            | "anycast" | "nat" => self.kind = Some(name),
            "to" => {
                let destination = cursor.value(name)?;
                self.destination(destination.text)?;
            }
            "via" => self.via = Some(cursor.gateway()?),
            "dev" | "oif" => self.device = Some(cursor.value(name)?.text.to_owned()),
            "table" => self.table = Some(cursor.table(name, context)?),
            "metric" => self.metric = cursor.read(name, "metric", values::number)?,
            "protocol" => self.protocol = cursor.protocol(name, context)?,
            "src" => {
                self.source = Some(cursor.read(name, "address", values::address)?);
            }
            "mtu" => {
                let locked = cursor.peek().is_some_and(|token| token.text == "lock");
                if locked {
                    cursor.next();
                    self.left_out.push((token.line, "mtu lock".to_owned()));
                }
                self.mtu = Some(cursor.read(name, "MTU in bytes", values::number)?);
            }
            "nhid" => self.nexthop = Some(cursor.read(name, "nexthop id", values::number)?),
            "weight" => self.weight = Some(cursor.read(name, "weight from 1 to 256", weight)?),
            "scope" | "pref" | "error" | "iif" | "expires" | "age" | "used" | "users" | "uid" => {
                cursor.value(name)?;
            }
            "vrf" => {
                let vrf = cursor.value(name)?.text;
                self.table = context.vrfs.get(vrf).copied().or(self.table);
                if !context.vrfs.contains_key(vrf) {
                    self.is_of_unknown_table = true;
                    self.unknown = Some(format!("the table of VRF {vrf} was not given"));
                }
            }
            // They select packets, or encapsulate: the rest of the line alone would be another route.
            "from" | "tos" | "dsfield" => {
                let value = cursor.value(name)?.text;
                self.unknown = Some(format!("for packets \"{name} {value}\" only, which is not held here"));
            }
            "encap" => {
                self.unknown = Some("encapsulates (\"encap\"), which is not held here".to_owned());
                while cursor
                    .peek()
                    .is_some_and(|token| !matches!(token.text, "via" | "dev" | "nexthop" | "table"))
                {
                    cursor.next();
                }
            }
            _ if option_with_value(name) => {
                let mut text = name.to_owned();
                if cursor.peek().is_some_and(|token| token.text == "lock") {
                    cursor.next();
                    text.push_str(" lock");
                }
                text = format!("{text} {}", cursor.value(name)?.text);
                self.left_out.push((token.line, text));
            }
            _ => self.destination(name)?,
        }
        Ok(())
    }

    fn destination(&mut self, text: &str) -> Result<(), ParseError> {
        if self.destination.is_some() || self.default {
            return Err(ParseError(format!("\"{text}\" stands where the route has its destination already")));
        }
        if matches!(text, "default" | "any" | "all") {
            self.default = true;
            return Ok(());
        }
        let prefix = values::prefix(text)
            .ok_or_else(|| ParseError(unfit("", text, "destination or option of a route")))?;
        self.destination = Some(prefix);
        Ok(())
    }

    /// `nexthop via ADDRESS dev NAME weight N`, in any order.
    fn hop(
        &mut self,
        cursor: &mut Cursor<'_, '_>,
        start: Token<'_>,
        context: Context<'_>,
    ) -> Result<(), ParseError> {
        let hop = one_hop(cursor)?;
        let Some(via) = hop.via else {
            self.unknown = Some("a next hop without gateway, which is not held here".to_owned());
            return Ok(());
        };
        if hop.is_on_link {
            self.on_link.push((via, hop.interface.clone()));
        }
        let place = Some(context.place(start.line));
        self.hops.push(Hop { via, interface: hop.interface, weight: hop.weight, place });
        Ok(())
    }

    fn finish(mut self, line: u32, context: Context<'_>) -> Result<ParsedRoute, ParseError> {
        let family_of_hops = self.via.or_else(|| self.hops.first().map(|hop| hop.via));
        let destination = match self.destination {
            Some(destination) => destination,
            None if self.default => {
                let ipv6 = context.ipv6.or(family_of_hops.map(|via| via.is_ipv6())).unwrap_or(false);
                values::everything(ipv6)
            }
            None => return Err(ParseError("a route without destination".to_owned())),
        };
        if self.kind.is_some_and(|kind| RouteAction::of_type(kind).is_none()) {
            return Err(ParseError("a route of this type is not held here".to_owned()));
        }
        if let Some(via) = self.via.filter(|_| self.is_on_link) {
            self.on_link.push((via, self.device.clone()));
        }
        let (action, printed) = match self.nexthop.filter(|_| self.kind.is_none()) {
            // With `nhid`, `ip route show` prints the members too.
            Some(id) => (RouteAction::Nexthop(id), self.action(line, context).ok()),
            // What is not known has no action of its own.
            None if self.unknown.is_some() => (RouteAction::Unreachable, None),
            None => (self.action(line, context)?, None),
        };
        let value = RouteEntry {
            destination,
            table: self.table.filter(|table| *table != 0).unwrap_or(MAIN_TABLE),
            metric: self.metric,
            action,
            source: self.source,
            mtu: self.mtu,
            protocol: self.protocol,
            place: Some(context.place(line)),
        };
        let printed = printed.filter(|action| matches!(action, RouteAction::Gateways(_)));
        let Self { unknown, is_of_unknown_table, on_link, left_out, .. } = self;
        Ok(ParsedRoute { value, unknown, is_of_unknown_table, on_link, printed, left_out })
    }

    fn action(&mut self, line: u32, context: Context<'_>) -> Result<RouteAction, ParseError> {
        if let Some(action) = self.kind.and_then(RouteAction::of_type) {
            return Ok(action);
        }
        let mut hops = std::mem::take(&mut self.hops);
        if let Some(via) = self.via {
            let interface = self.device.take().or_else(|| context.device.map(str::to_owned));
            hops.insert(0, Hop { via, interface, weight: self.weight.unwrap_or(1), place: None });
        }
        for hop in &mut hops {
            // A place of its own only where it differs from the route's.
            hop.place = hop.place.take().filter(|place| place.line != Some(line));
        }
        if !hops.is_empty() {
            return Ok(RouteAction::Gateways(hops));
        }
        match self.device.take().or_else(|| context.device.map(str::to_owned)) {
            Some(interface) => Ok(RouteAction::Link { interface }),
            None => Err(ParseError("a route without gateway, interface or type".to_owned())),
        }
    }
}

/// An argument by its whole name, where ip-route(8) takes a shorter one (`matches` of iproute2, iproute.c).
fn full_name(token: &str) -> &str {
    let is_short = |name: &str, least: usize| token.len() >= least && name.starts_with(token);
    match token {
        _ if is_short("metric", 1) || is_short("priority", 3) || is_short("preference", 5) => "metric",
        _ if is_short("protocol", 3) => "protocol",
        _ if is_short("table", 1) => "table",
        whole => whole,
    }
}

/// Types of routes in the order of their numbers, from 1 (rtnetlink(7), `rtm_type`).
pub(crate) const TYPES: [&str; 9] = [
    "unicast",
    "local",
    "broadcast",
    "anycast",
    "multicast",
    "blackhole",
    "unreachable",
    "prohibit",
    "throw",
];

/// Type of a route by its number.
pub(crate) fn type_by_number(token: &str) -> Option<&'static str> {
    match token.as_bytes() {
        [digit @ b'1'..=b'9'] => TYPES.get(usize::from(digit - b'1')).copied(),
        _ => None,
    }
}

/// A next hop as it is written.
struct OneHop {
    via: Option<IpAddr>,
    interface: Option<String>,
    weight: u16,
    is_on_link: bool,
}

fn one_hop(cursor: &mut Cursor<'_, '_>) -> Result<OneHop, ParseError> {
    let mut hop = OneHop { via: None, interface: None, weight: 1, is_on_link: false };
    while let Some(token) = cursor.peek() {
        match token.text {
            "via" => {
                cursor.next();
                hop.via = Some(cursor.gateway()?);
            }
            "dev" | "oif" => {
                cursor.next();
                hop.interface = Some(cursor.value("dev")?.text.to_owned());
            }
            "weight" => {
                cursor.next();
                hop.weight = cursor.read("weight", "weight from 1 to 256", weight)?;
            }
            "onlink" => {
                cursor.next();
                hop.is_on_link = true;
            }
            "linkdown" | "dead" | "pervasive" | "offload" | "trap" => {
                cursor.next();
            }
            "realm" | "realms" => {
                cursor.next();
                cursor.value("realm")?;
            }
            _ => break,
        }
    }
    Ok(hop)
}

/// rtnh_hops is one octet and counts from 0 (rtnetlink(7)); nexthop groups of
/// newer kernels have two.
fn weight(token: &str) -> Option<u16> {
    values::number(token).filter(|weight| *weight >= 1)
}

/// Options of ip-route(8) that have a value and no place in a routing plan.
fn option_with_value(name: &str) -> bool {
    matches!(
        name,
        "realm"
            | "realms"
            | "window"
            | "rtt"
            | "rttvar"
            | "rto_min"
            | "ssthresh"
            | "cwnd"
            | "initcwnd"
            | "initrwnd"
            | "features"
            | "quickack"
            | "congctl"
            | "advmss"
            | "reordering"
            | "hoplimit"
            | "fastopen_no_cookie"
            | "ttl-propagate"
            | "as"
    )
}
