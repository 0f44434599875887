//! Nexthop objects and groups (`ip nexthop`, linux/nexthop.h). The packet library has no such messages, so
//! they are encoded here.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use clearstream_schema::routing::{GroupMember, Nexthop, NexthopTarget, Resilient};
use netlink_packet_core::{
    NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NetlinkDeserializable, NetlinkHeader, NetlinkSerializable,
};

use crate::{
    NetlinkError, RouteSocket,
    ethtool::message::{attributes, number, put},
    names::Names,
};

// linux/rtnetlink.h
const NEW: u16 = 104;
const DELETE: u16 = 105;
const GET: u16 = 106;
const NEW_BUCKET: u16 = 116;
const GET_BUCKET: u16 = 118;
// linux/nexthop.h
const ID: u16 = 1;
const GROUP: u16 = 2;
const GROUP_TYPE: u16 = 3;
const BLACKHOLE: u16 = 4;
const INTERFACE: u16 = 5;
const GATEWAY: u16 = 6;
const ENCAPSULATION: u16 = 8;
const FORWARDING_DATABASE: u16 = 11;
const RESILIENT: u16 = 12;
const BUCKET: u16 = 13;
const BUCKET_NEXTHOP: u16 = 3;
const RESILIENT_BUCKETS: u16 = 1;
const RESILIENT_IDLE: u16 = 2;
const RESILIENT_UNBALANCED: u16 = 3;
const RESILIENT_UNBALANCED_TIME: u16 = 4;
const GROUP_TYPE_RESILIENT: u16 = 1;
const NESTED: u16 = 0x8000;
/// `RTNH_F_ONLINK`.
const ON_LINK: u32 = 4;
/// Timers are in hundredths of a second (`USER_HZ`, clock_t).
const TICKS: u32 = 100;
/// Octets of `struct nhmsg`.
const HEADER: usize = 8;

/// A nexthop object of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveNexthop {
    /// The supported attributes.
    pub entry: Nexthop,
    /// Attributes in the syntax of `ip nexthop` that the entry cannot hold.
    pub unsupported: Vec<String>,
    /// How long a resilient group has had members with too few buckets; 0 for one that has none.
    pub unbalanced_for_seconds: u64,
}

/// `struct nhmsg` and what follows.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NexthopMessage {
    kind: u16,
    body: Vec<u8>,
}

impl NetlinkSerializable for NexthopMessage {
    fn message_type(&self) -> u16 {
        self.kind
    }

    fn buffer_len(&self) -> usize {
        self.body.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer[..self.body.len()].copy_from_slice(&self.body);
    }
}

impl NetlinkDeserializable for NexthopMessage {
    type Error = Infallible;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, Infallible> {
        Ok(Self { kind: header.message_type, body: payload.to_vec() })
    }
}

impl NexthopMessage {
    fn new(kind: u16, family: u8, protocol: u8) -> Self {
        Self { kind, body: vec![family, 0, protocol, 0, 0, 0, 0, 0] }
    }

    fn put(&mut self, attribute: u16, value: &[u8]) {
        put(&mut self.body, attribute, value);
    }
}

impl RouteSocket {
    /// Nexthop objects and groups, by id. A kernel without them (before 5.3) has none.
    pub fn nexthops(&mut self) -> Result<Vec<LiveNexthop>, NetlinkError> {
        let names = self.names()?;
        let replies = match self.dump(NexthopMessage::new(GET, 0, 0), || "list nexthop objects".to_owned()) {
            Err(error) if is_unknown(&error) => return Ok(Vec::new()),
            other => other?,
        };
        let read = |reply: NexthopMessage| read(&reply, &names);
        let mut found: Vec<LiveNexthop> = replies.into_iter().filter_map(read).collect();
        found.sort_by_key(|found| found.entry.id);
        Ok(found)
    }

    /// Creates a nexthop object, or replaces the one with this id in place: routes and groups that use it
    /// continue without interruption.
    pub fn set_nexthop(&mut self, nexthop: &Nexthop) -> Result<(), NetlinkError> {
        self.write_nexthop(nexthop, NLM_F_REPLACE)
    }

    /// Creates a nexthop object; fails with `EEXIST` where one has this id.
    pub fn add_nexthop(&mut self, nexthop: &Nexthop) -> Result<(), NetlinkError> {
        self.write_nexthop(nexthop, NLM_F_EXCL)
    }

    fn write_nexthop(&mut self, nexthop: &Nexthop, flag: u16) -> Result<(), NetlinkError> {
        let names = self.names()?;
        let message = written(nexthop, &names)?;
        self.change(message, NLM_F_CREATE | flag, || format!("set nexthop {}", nexthop.id))
    }

    /// Number of buckets per member of a resilient group (`ip nexthop bucket`).
    pub fn bucket_counts(&mut self, group: u32) -> Result<BTreeMap<u32, u32>, NetlinkError> {
        let mut query = NexthopMessage::new(GET_BUCKET, 0, 0);
        query.put(ID, &group.to_ne_bytes());
        let mut counts = BTreeMap::new();
        for reply in self.dump(query, || format!("list the buckets of nexthop {group}"))? {
            let body = reply.body.get(HEADER..).filter(|_| reply.kind == NEW_BUCKET).unwrap_or(&[]);
            let bucket = attributes(body).find(|(kind, _)| kind & !NESTED == BUCKET);
            let member = bucket.and_then(|(_, bucket)| {
                attributes(bucket).find(|(kind, _)| *kind == BUCKET_NEXTHOP).and_then(|(_, id)| number(id))
            });
            member.into_iter().for_each(|member| *counts.entry(member).or_default() += 1);
        }
        Ok(counts)
    }

    /// Removes a nexthop object. The kernel removes it from its groups, and removes the routes that use it
    /// alone.
    pub fn remove_nexthop(&mut self, id: u32) -> Result<(), NetlinkError> {
        let mut message = NexthopMessage::new(DELETE, 0, 0);
        message.put(ID, &id.to_ne_bytes());
        self.change(message, 0, || format!("remove nexthop {id}"))
    }
}

/// Whether the error is that of a kernel without nexthop objects.
fn is_unknown(error: &NetlinkError) -> bool {
    let unknown = [rustix::io::Errno::OPNOTSUPP, rustix::io::Errno::INVAL];
    unknown.iter().any(|errno| error.refused_with() == Some(errno.raw_os_error()))
}

fn written(nexthop: &Nexthop, names: &Names) -> Result<NexthopMessage, NetlinkError> {
    // AF_INET, AF_INET6; groups have no family (AF_UNSPEC).
    let family = match &nexthop.target {
        NexthopTarget::Gateway { via: IpAddr::V6(_), .. } => 10,
        NexthopTarget::Gateway { .. } | NexthopTarget::Blackhole => 2,
        NexthopTarget::Group { .. } => 0,
    };
    let mut message = NexthopMessage::new(NEW, family, nexthop.protocol);
    message.put(ID, &nexthop.id.to_ne_bytes());
    match &nexthop.target {
        NexthopTarget::Gateway { via, interface } => {
            message.put(INTERFACE, &names.index(interface)?.to_ne_bytes());
            match via {
                IpAddr::V4(address) => message.put(GATEWAY, &address.octets()),
                IpAddr::V6(address) => message.put(GATEWAY, &address.octets()),
            }
        }
        NexthopTarget::Blackhole => message.put(BLACKHOLE, &[]),
        NexthopTarget::Group { members, resilient } => {
            let mut group = Vec::new();
            for member in members {
                // `struct nexthop_grp`: the weight is stored less one, its high octet separately (Linux 6.12;
                // zero before).
                let [low, high] = member.weight.saturating_sub(1).to_le_bytes();
                group.extend_from_slice(&member.id.to_ne_bytes());
                group.extend_from_slice(&[low, high, 0, 0]);
            }
            message.put(GROUP, &group);
            if let Some(resilient) = resilient {
                message.put(GROUP_TYPE, &GROUP_TYPE_RESILIENT.to_ne_bytes());
                let mut inside = Vec::new();
                put(&mut inside, RESILIENT_BUCKETS, &resilient.bucket_count.to_ne_bytes());
                let ticks = |seconds: u32| seconds.saturating_mul(TICKS).to_ne_bytes();
                put(&mut inside, RESILIENT_IDLE, &ticks(resilient.idle_seconds));
                put(&mut inside, RESILIENT_UNBALANCED, &ticks(resilient.unbalanced_seconds));
                message.put(RESILIENT | NESTED, &inside);
            }
        }
    }
    Ok(message)
}

fn read(message: &NexthopMessage, names: &Names) -> Option<LiveNexthop> {
    let header = message.body.get(..HEADER).filter(|_| message.kind == NEW)?;
    let flags = u32::from_ne_bytes(header[4..].try_into().ok()?);
    let mut unsupported = Vec::new();
    let (mut id, mut via, mut interface, mut members, mut resilient) = (None, None, None, None, None);
    let (mut is_blackhole, mut unbalanced_for_seconds) = (false, 0);
    for (kind, value) in attributes(&message.body[HEADER..]) {
        match kind & !NESTED {
            ID => id = number(value),
            GROUP => members = Some(group(value)),
            BLACKHOLE => is_blackhole = true,
            INTERFACE => interface = number(value).map(|index| names.of(index)),
            GATEWAY => via = address(value),
            RESILIENT => {
                resilient = Some(parameters(value));
                unbalanced_for_seconds = unbalanced_time(value) / u64::from(TICKS);
            }
            ENCAPSULATION => unsupported.push("encap".to_owned()),
            FORWARDING_DATABASE => unsupported.push("fdb".to_owned()),
            _ => {}
        }
    }
    if flags & ON_LINK != 0 {
        unsupported.push("onlink".to_owned());
    }
    let target = match (members, via, interface) {
        (Some(members), ..) => NexthopTarget::Group { members, resilient },
        _ if is_blackhole => NexthopTarget::Blackhole,
        (_, Some(via), Some(interface)) => NexthopTarget::Gateway { via, interface },
        (_, Some(via), None) => {
            unsupported.push("without interface".to_owned());
            NexthopTarget::Gateway { via, interface: String::new() }
        }
        // On-link: every destination is a neighbour.
        (_, None, interface) => {
            unsupported.push("without gateway".to_owned());
            let any =
                if header[0] == 10 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
            NexthopTarget::Gateway { via: any, interface: interface.unwrap_or_default() }
        }
    };
    let entry = Nexthop { id: id?, target, protocol: header[2], place: None };
    Some(LiveNexthop { entry, unsupported, unbalanced_for_seconds })
}

fn address(value: &[u8]) -> Option<IpAddr> {
    match value.len() {
        4 => <[u8; 4]>::try_from(value).ok().map(IpAddr::from),
        _ => <[u8; 16]>::try_from(value).ok().map(IpAddr::from),
    }
}

fn group(value: &[u8]) -> Vec<GroupMember> {
    let (members, _) = value.as_chunks::<8>();
    let member = |entry: &[u8; 8]| GroupMember {
        id: u32::from_ne_bytes([entry[0], entry[1], entry[2], entry[3]]),
        weight: u16::from_le_bytes([entry[4], entry[5]]).saturating_add(1),
    };
    members.iter().map(member).collect()
}

/// Ticks.
fn unbalanced_time(value: &[u8]) -> u64 {
    let found = attributes(value).find(|(kind, _)| *kind == RESILIENT_UNBALANCED_TIME);
    found.and_then(|(_, time)| time.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

fn parameters(value: &[u8]) -> Resilient {
    let mut found = Resilient { bucket_count: 0, idle_seconds: 0, unbalanced_seconds: 0 };
    for (kind, value) in attributes(value) {
        match (kind, number(value)) {
            (RESILIENT_BUCKETS, _) => {
                found.bucket_count = value.try_into().map(u16::from_ne_bytes).unwrap_or_default();
            }
            (RESILIENT_IDLE, Some(ticks)) => found.idle_seconds = ticks / TICKS,
            (RESILIENT_UNBALANCED, Some(ticks)) => found.unbalanced_seconds = ticks / TICKS,
            _ => {}
        }
    }
    found
}
