//! Routing state in a bundle: addresses are replaced by prefix-preserving anonymization, so that hosts stay
//! in their networks.
//!
//! The bits of an address are flipped one by one, each by a keyed hash of the bits before it, so that two
//! addresses share as many leading bits after as before (Xu, Fan, Ammar, Moon, "Prefix-preserving IP address
//! anonymization", ICNP 2002). Special-purpose ranges are preserved.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use clearstream_schema::{
    prefix::Prefix,
    routing::{HostRouting, NexthopTarget, RouteAction, RuleAction},
};
use sha2::{Digest, Sha256};

/// Treatment of a host's routing addresses in a bundle.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Addresses {
    /// Replaced with a random key of this bundle.
    #[default]
    Replaced,
    /// Replaced with this key in all bundles, so that separately captured hosts stay consistent.
    Keyed(AddressKey),
    /// Kept.
    Kept,
}

/// A key of [`Addresses::Keyed`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AddressKey([u8; 32]);

impl AddressKey {
    /// Derives the key from a phrase.
    pub fn of_phrase(phrase: &str) -> Self {
        Self(Sha256::digest(phrase.as_bytes()).into())
    }

    fn random() -> Self {
        let mut hash = Sha256::new();
        for _ in 0..4 {
            // Each `RandomState` has its own key from the system's random numbers.
            hash.update(RandomState::new().build_hasher().finish().to_le_bytes());
        }
        Self(hash.finalize().into())
    }
}

impl std::fmt::Debug for AddressKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AddressKey")
    }
}

/// Replaces what identifies a host. `name` replaces text in names.
pub(super) fn redact(routing: &mut HostRouting, addresses: Addresses, mut name: impl FnMut(&str) -> String) {
    // Sysctls are files of the bundle.
    routing.sysctls.clear();
    let key = match addresses {
        Addresses::Kept => None,
        Addresses::Keyed(key) => Some(key),
        Addresses::Replaced => Some(AddressKey::random()),
    };
    let Some(key) = key else { return };
    for interface in &mut routing.interfaces {
        interface.name = name(&interface.name);
        interface.addresses.retain(|address| !address.value.address.is_loopback());
        for address in &mut interface.addresses {
            address.value.address = key.address(address.value.address);
        }
        interface.link_address = interface.link_address.as_deref().map(|link| key.link_address(link));
    }
    for absent in &mut routing.kernel.absent_networks {
        (absent.interface, absent.network) = (name(&absent.interface), key.prefix(absent.network));
    }
    for preference in &mut routing.kernel.preferences {
        preference.destination = key.prefix(preference.destination);
        redact_action(&mut preference.action, &key, &mut name);
    }
    let members = std::mem::take(&mut routing.kernel.vrf_members);
    routing.kernel.vrf_members =
        members.into_iter().map(|(interface, table)| (name(&interface), table)).collect();
    for nexthop in &mut routing.nexthops {
        if let NexthopTarget::Gateway { via, interface } = &mut nexthop.target {
            (*via, *interface) = (key.address(*via), name(interface));
        }
    }
    for special in &mut routing.special_routes {
        special.from = special.from.map(|from| key.prefix(from));
    }
    let special = routing.special_routes.iter_mut().map(|special| &mut special.route);
    for route in routing.routes.iter_mut().chain(special) {
        route.destination = key.prefix(route.destination);
        route.source = route.source.map(|source| key.address(source));
        redact_action(&mut route.action, &key, &mut name);
    }
    for rule in &mut routing.rules {
        let selector = &mut rule.selector;
        selector.from = selector.from.map(|from| key.prefix(from));
        selector.to = selector.to.map(|to| key.prefix(to));
        selector.input = selector.input.as_deref().map(&mut name);
        selector.output = selector.output.as_deref().map(&mut name);
        selector.other.iter_mut().for_each(|text| *text = name(text));
        if let RuleAction::Other(text) = &mut rule.action {
            *text = name(text);
        }
    }
    for mark in &mut routing.connection_marks {
        mark.interface = name(&mark.interface);
        mark.link_address = key.link_address(&mark.link_address);
        mark.gateway.clear();
    }
    for translation in routing.source_translations.iter_mut().flatten() {
        translation.output = translation.output.as_deref().map(&mut name);
        translation.from = translation.from.map(|from| key.prefix(from));
        translation.to = translation.to.map(|to| key.address(to));
    }
}

fn redact_action(action: &mut RouteAction, key: &AddressKey, name: &mut impl FnMut(&str) -> String) {
    match action {
        RouteAction::Link { interface } => *interface = name(interface),
        RouteAction::Gateways(hops) => {
            for hop in hops {
                hop.via = key.address(hop.via);
                hop.interface = hop.interface.as_deref().map(&mut *name);
            }
        }
        _ => {}
    }
}

impl AddressKey {
    fn hash(&self, salt: &str, value: u128, length: u32) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(self.0);
        hash.update(salt.as_bytes());
        hash.update(value.to_le_bytes());
        hash.update(length.to_le_bytes());
        hash.finalize().into()
    }

    /// Replaces a network, or a single address.
    fn prefix(&self, prefix: Prefix) -> Prefix {
        Prefix { address: self.address(prefix.address), length: prefix.length }.network()
    }

    fn address(&self, address: IpAddr) -> IpAddr {
        match address {
            IpAddr::V4(address) => IpAddr::V4(self.ipv4(address)),
            IpAddr::V6(address) => IpAddr::V6(self.ipv6(address)),
        }
    }

    fn ipv4(&self, address: Ipv4Addr) -> Ipv4Addr {
        let [first, second, ..] = address.octets();
        if address.is_loopback() || address.is_multicast() || first == 0 || first >= 224 {
            return address;
        }
        // RFC 1918, 6598 and 3927: private, shared and link-local ranges.
        let (head, kept) = match (first, second) {
            (10, _) => ([first, 0], 8),
            (172, 16..=31) => ([first, second], 12),
            (100, 64..=127) => ([first, second], 10),
            (192, 168) | (169, 254) => ([first, second], 16),
            // The other ranges exclude their special-purpose blocks.
            (172, _) => ([first, self.shuffled(second, |other| !(16..=31).contains(&other))], 16),
            (100, _) => ([first, self.shuffled(second, |other| !(64..=127).contains(&other))], 16),
            (192, _) => ([first, self.shuffled(second, |other| other != 168)], 16),
            (169, _) => ([first, self.shuffled(second, |other| other != 254)], 16),
            _ => {
                let is_plain =
                    |other| (1..224).contains(&other) && !matches!(other, 10 | 100 | 127 | 169 | 172 | 192);
                ([self.shuffled(first, is_plain), 0], 8)
            }
        };
        let flipped = self.flipped("4", u128::from(u32::from(address)), 32, kept);
        let tail = u32::try_from(flipped).unwrap_or_default() & (u32::MAX >> kept);
        let head = u32::from_be_bytes([head[0], head[1], 0, 0]) & !(u32::MAX >> kept);
        Ipv4Addr::from(head | tail)
    }

    fn ipv6(&self, address: Ipv6Addr) -> Ipv6Addr {
        if address.is_loopback() || address.is_unspecified() || address.is_multicast() {
            return address;
        }
        // RFC 4291 and 4193. An interface identifier may be a MAC address.
        let kept = if address.is_unicast_link_local() {
            64
        } else if address.is_unique_local() {
            8
        } else {
            3
        };
        Ipv6Addr::from(self.flipped("6", u128::from(address), 128, kept))
    }

    /// Flips each bit after the first `kept`, depending on the bits before it.
    fn flipped(&self, salt: &str, value: u128, width: u32, kept: u32) -> u128 {
        let mut flipped = value;
        for at in kept..width {
            let before = value.checked_shr(width - at).unwrap_or(0);
            if self.hash(salt, before, at)[0] & 1 == 1 {
                flipped ^= 1 << (width - 1 - at);
            }
        }
        flipped
    }

    /// A bijective replacement of an octet among those allowed.
    fn shuffled(&self, octet: u8, is_allowed: impl Fn(u8) -> bool) -> u8 {
        let allowed: Vec<u8> = (0..=u8::MAX).filter(|octet| is_allowed(*octet)).collect();
        let mut shuffled = allowed.clone();
        shuffled.sort_by_cached_key(|octet| self.hash("octet", u128::from(*octet), 8));
        let at = allowed.iter().position(|other| *other == octet);
        at.and_then(|at| shuffled.get(at).copied()).unwrap_or(octet)
    }

    /// Another link address of the same length, locally administered (IEEE 802, bit 1).
    fn link_address(&self, link: &str) -> String {
        let octets: Vec<u8> =
            link.split(':').filter_map(|octet| u8::from_str_radix(octet, 16).ok()).collect();
        if octets.iter().all(|octet| *octet == 0) {
            return link.to_owned();
        }
        let mut hash = Sha256::new();
        hash.update(self.0);
        hash.update(&octets);
        let hash = hash.finalize();
        let mut written = vec!["02".to_owned()];
        let hashed = hash.iter().cycle().skip(1).take(octets.len().saturating_sub(1));
        written.extend(hashed.map(|octet| format!("{octet:02x}")));
        written.join(":")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn common_bits(left: IpAddr, right: IpAddr) -> u32 {
        match (left, right) {
            (IpAddr::V4(left), IpAddr::V4(right)) => (u32::from(left) ^ u32::from(right)).leading_zeros(),
            (IpAddr::V6(left), IpAddr::V6(right)) => (u128::from(left) ^ u128::from(right)).leading_zeros(),
            _ => 0,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Hosts inside a network of 8 bits or more stay inside, others stay outside: addresses share as many
        /// leading bits as before.
        #[test]
        fn networks_keep_their_hosts(base: u32, other: u32, bits in 8_u32..32) {
            let key = AddressKey::of_phrase("one");
            let neighbour = base ^ (other >> bits);
            let (left, right) = (IpAddr::from(base.to_be_bytes()), IpAddr::from(neighbour.to_be_bytes()));
            let (new_left, new_right) = (key.address(left), key.address(right));
            let bits = common_bits(left, right);
            prop_assume!(bits >= 16);
            prop_assert_eq!(common_bits(new_left, new_right), bits);
        }

        #[test]
        fn networks_keep_their_hosts_in_ipv6(base: u128, other: u128, bits in 4_u32..128) {
            let key = AddressKey::of_phrase("one");
            let base = (0x2 << 124) | (base >> 4);
            let neighbour = base ^ (other >> bits);
            let (left, right) = (IpAddr::from(base.to_be_bytes()), IpAddr::from(neighbour.to_be_bytes()));
            prop_assert_eq!(common_bits(key.address(left), key.address(right)), common_bits(left, right));
        }

        /// Special-purpose ranges are preserved.
        #[test]
        fn special_ranges_are_preserved(address: u32) {
            let key = AddressKey::random();
            let old = Ipv4Addr::from(address);
            let IpAddr::V4(new) = key.address(IpAddr::V4(old)) else { unreachable!() };
            for meaning in
                [Ipv4Addr::is_private, Ipv4Addr::is_loopback, Ipv4Addr::is_link_local, Ipv4Addr::is_multicast]
            {
                prop_assert_eq!(meaning(&old), meaning(&new), "{} {}", old, new);
            }
        }
    }

    #[test]
    fn replacements_depend_on_the_phrase_alone() {
        let address: IpAddr = "10.10.0.11".parse().unwrap();
        let of = |phrase: &str| AddressKey::of_phrase(phrase).address(address);
        assert_eq!(of("a"), of("a"));
        assert_ne!(of("a"), of("b"));
        assert_ne!(of("a"), address);
        assert_eq!(AddressKey::of_phrase("a").link_address("52:54:00:12:34:56").len(), 17);
    }

    #[test]
    fn octets_are_replaced_one_to_one() {
        let key = AddressKey::of_phrase("a");
        let mut heads: Vec<u8> = (1..224)
            .map(|first| match key.address(IpAddr::from([first, 0, 0, 1])) {
                IpAddr::V4(address) => address.octets()[0],
                IpAddr::V6(_) => 0,
            })
            .collect();
        heads.sort_unstable();
        assert_eq!(heads, (1..224).collect::<Vec<u8>>());
    }
}
