//! How the kernel spreads flows over next hops: its hash where the seed is
//! known, the thresholds of a group, and the buckets of a resilient group.
//!
//! Sources, Linux 6.18: `fib_multipath_hash_from_keys` (include/net/ip_fib.h),
//! `fib_multipath_hash` (net/ipv4/route.c), `rt6_multipath_hash`
//! (net/ipv6/route.c), `flow_hash_from_keys_seed` (net/core/flow_dissector.c),
//! `nh_hthr_group_rebalance` and `nh_res_table_upkeep` (net/ipv4/nexthop.c).
//! SipHash-2-4 is that of Aumasson and Bernstein (2012). Little-endian hosts
//! are assumed.

use std::net::IpAddr;

use clearstream_schema::fabric::HashPolicy;
use siphasher::sip::SipHasher24;

/// A flow, as far as next hops are chosen by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowKey {
    /// Source address.
    pub source: IpAddr,
    /// Destination address, of the same family.
    pub destination: IpAddr,
    /// Protocol number, 6 for TCP.
    pub protocol: u8,
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
}

/// Whether a host's sysctls spread the flows of two addresses by their ports: policy 1, or 3 with
/// bits 0x10 or 0x20 of its fields (`fib_multipath_hash_policy` and `_fields`, ip-sysctl). `read`
/// gives the value of a sysctl; absent where the policy is not known.
pub fn ports_are_hashed<'a>(ipv6: bool, read: impl Fn(&str) -> Option<&'a str>) -> Option<bool> {
    let family = if ipv6 { "ipv6" } else { "ipv4" };
    let policy = read(&format!("net.{family}.fib_multipath_hash_policy"))?;
    if policy.trim() != "3" {
        return Some(policy.trim() == "1");
    }
    let fields = read(&format!("net.{family}.fib_multipath_hash_fields"))?.trim();
    let fields = match fields.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => fields.parse(),
    };
    Some(fields.ok()? & 0x30 != 0)
}

impl FlowKey {
    /// The same flow from the other side.
    pub fn reversed(self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
            ..self
        }
    }
}

/// Key of the hash: the kernel repeats the 32 bits of its seed in all four
/// quarters of a SipHash key (`fib_multipath_hash_construct_key`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashKey([u64; 2]);

impl HashKey {
    /// The key of a host whose `fib_multipath_hash_seed` is `seed`, not zero.
    pub fn of_seed(seed: u32) -> Self {
        let half = (u64::from(seed) << 32) | u64::from(seed);
        Self([half, half])
    }

    /// Any key, as a host draws one at boot.
    pub fn from_raw(key: [u64; 2]) -> Self {
        Self(key)
    }
}

/// The 31 bits by which a host chooses a next hop. A flow and its reversal give
/// the same (`__flow_hash_consistentify`). With [`HashPolicy::Layer3`] IPv6
/// packets differ by their flow label too, which is taken as zero here; inner
/// packets are not known here, so [`HashPolicy::Inner`] is as layer 3, which is
/// what the kernel does without a tunnel.
pub fn multipath_hash(flow: &FlowKey, policy: HashPolicy, key: HashKey) -> u32 {
    let has_ports = policy == HashPolicy::Layer4;
    let ipv6 = flow.source.is_ipv6();
    // struct flow_keys from `basic` on: protocol in byte 2, ports from byte 28,
    // addresses from byte 36 to the end of the padded struct.
    let mut bytes = [0_u8; 72];
    if has_ports || ipv6 {
        bytes[2] = flow.protocol;
    }
    if has_ports {
        let ports = [flow.source_port.to_be_bytes(), flow.destination_port.to_be_bytes()];
        let in_order = u16::from_le_bytes(ports[0]) <= u16::from_le_bytes(ports[1]);
        let [first, second] = if in_order { ports } else { [ports[1], ports[0]] };
        bytes[28..30].copy_from_slice(&first);
        bytes[30..32].copy_from_slice(&second);
    }
    let length = match (flow.source, flow.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let (one, other) = (source.octets(), destination.octets());
            let in_order = u32::from_le_bytes(one) <= u32::from_le_bytes(other);
            let [first, second] = if in_order { [one, other] } else { [other, one] };
            bytes[36..40].copy_from_slice(&first);
            bytes[40..44].copy_from_slice(&second);
            48
        }
        (source, destination) => {
            let (one, other) = (octets(source), octets(destination));
            let [first, second] = if one <= other { [one, other] } else { [other, one] };
            bytes[36..52].copy_from_slice(&first);
            bytes[52..68].copy_from_slice(&second);
            72
        }
    };
    // The kernel keeps the lower half, and never zero.
    let hash = siphash(&bytes[..length], key) as u32;
    hash.max(1) >> 1
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

fn siphash(bytes: &[u8], HashKey([first, second]): HashKey) -> u64 {
    SipHasher24::new_with_keys(first, second).hash(bytes)
}

/// Upper bounds of the 31-bit hash for each next hop of a group or classic
/// route: the last hash that is still its own (`fib_nh_upper_bound`,
/// net/ipv4/fib_semantics.c).
pub fn thresholds<W: Copy + Into<u64>>(weights: &[W]) -> Vec<u32> {
    let weights = weights.iter().map(|weight| -> u64 { (*weight).into() });
    let total: u64 = weights.clone().sum();
    let mut sum = 0;
    let bound = |weight: u64| {
        sum += weight;
        // DIV_ROUND_CLOSEST_ULL(sum << 31, total) - 1
        (((sum << 31) + total / 2) / total.max(1)).saturating_sub(1) as u32
    };
    weights.map(bound).collect()
}

/// The next hop that a hash falls to.
pub fn choose(thresholds: &[u32], hash: u32) -> usize {
    thresholds.partition_point(|bound| *bound < hash).min(thresholds.len().saturating_sub(1))
}

/// Fewest buckets that are chosen for a group.
const FEWEST_BUCKETS: u64 = 120;
/// Most: `NHA_RES_GROUP_BUCKETS` is a u16, and a table is kept for each group.
const MOST_BUCKETS: u64 = 16_384;
/// Buckets for each next hop: when one goes, its share falls to the others in
/// parts of a twentieth.
const BUCKETS_EACH: usize = 20;

/// Buckets by which shares are exactly those of the weights: a multiple of the
/// sum of the weights, without their common divisor. Where that is too many,
/// the most there may be, which miss the weights least.
pub fn bucket_count(weights: &[u16]) -> u16 {
    fn common(one: u64, other: u64) -> u64 {
        if other == 0 { one } else { common(other, one % other) }
    }
    let divisor = weights.iter().fold(0, |divisor, weight| common(divisor, u64::from(*weight))).max(1);
    let whole = (weights.iter().map(|weight| u64::from(*weight)).sum::<u64>() / divisor).max(1);
    let enough = FEWEST_BUCKETS.max((weights.len() * BUCKETS_EACH) as u64);
    enough.next_multiple_of(whole).min(MOST_BUCKETS) as u16
}

/// Buckets of a resilient group; a hash falls to bucket `hash % count`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buckets {
    /// Next hop of each bucket, by its place in the group; none when the group is empty.
    pub owners: Vec<Option<usize>>,
}

impl Buckets {
    /// Buckets of a new group.
    pub fn new(count: u16, weights: &[u16]) -> Self {
        let mut buckets = Self { owners: vec![None; usize::from(count)] };
        buckets.settle(&wanted(buckets.owners.len(), weights), false);
        buckets
    }

    /// Weights changed: a next hop of weight zero is gone. Buckets of what is
    /// gone move; those of a next hop that has too many move only when idle.
    pub fn change(&mut self, weights: &[u16], idle: bool) {
        for owner in &mut self.owners {
            *owner = owner.filter(|member| weights.get(*member).is_some_and(|weight| *weight > 0));
        }
        self.settle(&wanted(self.owners.len(), weights), idle);
    }

    /// `nh_res_table_upkeep`: in order, a bucket that has to move goes to the
    /// first next hop that lacks some. Such next hops are put at the head of
    /// their list one after the other, so the last of the group comes first.
    fn settle(&mut self, wants: &[usize], idle: bool) {
        let mut has = vec![0_usize; wants.len()];
        for member in self.owners.iter().flatten() {
            has[*member] += 1;
        }
        for owner in &mut self.owners {
            if owner.is_some_and(|member| !idle || has[member] <= wants[member]) {
                continue;
            }
            if let Some(member) = (0..wants.len()).rev().find(|member| has[*member] < wants[*member]) {
                if let Some(before) = *owner {
                    has[before] -= 1;
                }
                has[member] += 1;
                *owner = Some(member);
            }
        }
    }
}

/// Buckets that each next hop is to have: `nh_res_group_rebalance`.
fn wanted(count: usize, weights: &[u16]) -> Vec<usize> {
    let total: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
    let (mut sum, mut before) = (0, 0);
    let share = |weight: &u16| {
        sum += u64::from(*weight);
        let bound = (count as u64 * sum + total / 2) / total.max(1);
        let wants = bound - before;
        before = bound;
        wants as usize
    };
    weights.iter().map(share).collect()
}

#[cfg(test)]
mod tests;
