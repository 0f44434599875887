//! `ip route add ...` and the lines of `ip route show` (ip-route(8)).

use std::net::IpAddr;

use clearstream_schema::{
    prefix::Prefix,
    routing::{Hop, MAIN_TABLE, RouteAction, RouteEntry},
};

use super::{Context, Cursor, ParseError, Parsed, Token, unfit};
use crate::read::values;

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
    left_out: Vec<(u32, String)>,
}

/// Reads the arguments of `ip route add`, or a line of `ip route show`.
/// Returns `None` for routes that the kernel creates for an address.
pub(crate) fn route(
    tokens: &[Token<'_>],
    context: Context<'_>,
) -> Result<Option<Parsed<RouteEntry>>, ParseError> {
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
            let hop = one_hop(&mut cursor, token, context)?;
            parts.hops.push(hop);
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
        let name = token.text;
        match name {
            "unicast" | "onlink" | "linkdown" | "dead" | "offload" | "trap" | "offload_failed"
            | "rt_offload" | "rt_trap" | "cache" => {}
            "blackhole" | "unreachable" | "prohibit" | "throw" | "local" | "broadcast" | "multicast"
            | "anycast" | "nat" => self.kind = Some(name),
            "to" => {
                let destination = cursor.value(name)?;
                self.destination(destination.text)?;
            }
            "via" => self.via = Some(cursor.gateway()?),
            "dev" | "oif" => self.device = Some(cursor.value(name)?.text.to_owned()),
            "table" => self.table = Some(cursor.table(name, context)?),
            "metric" | "priority" | "preference" => {
                self.metric = cursor.read(name, "metric", values::number)?
            }
            "proto" | "protocol" => self.protocol = cursor.protocol(name, context)?,
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
            "scope" | "pref" | "error" | "iif" | "expires" | "age" | "used" | "users" => {
                cursor.value(name)?;
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

    fn finish(mut self, line: u32, context: Context<'_>) -> Result<Parsed<RouteEntry>, ParseError> {
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
        let action = self.action(line, context)?;
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
        Ok(Parsed { value, left_out: self.left_out })
    }

    fn action(&mut self, line: u32, context: Context<'_>) -> Result<RouteAction, ParseError> {
        if let Some(action) = self.kind.and_then(RouteAction::of_type) {
            return Ok(action);
        }
        // With `nhid`, `ip route show` prints the members too.
        if let Some(id) = self.nexthop {
            return Ok(RouteAction::Nexthop(id));
        }
        let mut hops = std::mem::take(&mut self.hops);
        if let Some(via) = self.via {
            let interface = self.device.take();
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

/// `nexthop via ADDRESS dev NAME weight N`, in any order.
fn one_hop(cursor: &mut Cursor<'_, '_>, start: Token<'_>, context: Context<'_>) -> Result<Hop, ParseError> {
    let (mut via, mut interface, mut hop_weight) = (None, None, 1);
    while let Some(token) = cursor.peek() {
        match token.text {
            "via" => {
                cursor.next();
                via = Some(cursor.gateway()?);
            }
            "dev" | "oif" => {
                cursor.next();
                interface = Some(cursor.value("dev")?.text.to_owned());
            }
            "weight" => {
                cursor.next();
                hop_weight = cursor.read("weight", "weight from 1 to 256", weight)?;
            }
            "onlink" | "linkdown" | "dead" | "pervasive" | "offload" | "trap" => {
                cursor.next();
            }
            "realm" | "realms" => {
                cursor.next();
                cursor.value("realm")?;
            }
            _ => break,
        }
    }
    let via = via.ok_or_else(|| ParseError("a next hop without gateway".to_owned()))?;
    Ok(Hop { via, interface, weight: hop_weight, place: Some(context.place(start.line)) })
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
        "tos"
            | "dsfield"
            | "realm"
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
            | "from"
            | "as"
            | "vrf"
    )
}
