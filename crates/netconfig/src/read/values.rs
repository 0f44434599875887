//! Numbers, addresses and prefixes as people and tools write them.

use std::net::{IpAddr, Ipv4Addr};

use clearstream_schema::prefix::Prefix;

/// A number, decimal or with `0x`.
pub(crate) fn number<T: TryFrom<u64>>(text: &str) -> Option<T> {
    let value = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok()?,
        None => text.parse().ok()?,
    };
    T::try_from(value).ok()
}

/// A prefix: `10.0.0.0/8`, `10.0.0.0/255.0.0.0`, `10/8` (iproute2 pads with
/// zeros), or an address alone, which is a host.
pub(crate) fn prefix(text: &str) -> Option<Prefix> {
    let Some((address, length)) = text.split_once('/') else {
        return address(text).map(Prefix::host);
    };
    let address = padded(address)?;
    let length = match length.parse::<Ipv4Addr>() {
        Ok(mask) => mask_length(mask)?,
        Err(_) => length.parse().ok()?,
    };
    let most = if address.is_ipv4() { 32 } else { 128 };
    (length <= most).then_some(Prefix { address, length })
}

/// Length of a netmask whose ones are contiguous.
pub(crate) fn mask_length(mask: Ipv4Addr) -> Option<u8> {
    let bits = u32::from(mask);
    let ones = bits.leading_ones();
    (bits.count_ones() == ones).then(|| u8::try_from(ones).ok())?
}

/// An address.
pub(crate) fn address(text: &str) -> Option<IpAddr> {
    text.parse().ok()
}

fn padded(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let parts: Vec<&str> = text.split('.').collect();
    if parts.len() > 3 || parts.iter().any(|part| part.is_empty()) {
        return None;
    }
    let octets = parts.iter().map(|part| part.parse::<u8>().ok()).collect::<Option<Vec<u8>>>()?;
    let at = |index: usize| octets.get(index).copied().unwrap_or(0);
    Some(IpAddr::V4(Ipv4Addr::new(at(0), at(1), at(2), at(3))))
}

/// Why a route is not read, by its type.
pub(crate) fn unsupported_type(kind: &str) -> String {
    format!("a route of type {kind} is not held here")
}

/// The network of everything of a family.
pub(crate) fn everything(ipv6: bool) -> Prefix {
    let address = if ipv6 { IpAddr::V6(0.into()) } else { IpAddr::V4(0.into()) };
    Prefix { address, length: 0 }
}

/// A link address of Ethernet, in small letters.
pub(crate) fn link_address(text: &str) -> Option<String> {
    let octets: Vec<&str> = text.split(':').collect();
    let is_octet = |octet: &&str| octet.len() == 2 && octet.chars().all(|c| c.is_ascii_hexdigit());
    (octets.len() == 6 && octets.iter().all(is_octet)).then(|| text.to_ascii_lowercase())
}

/// A boolean of INI files and YAML.
pub(crate) fn truth(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "yes" | "true" | "on" | "1" | "y" | "t" => Some(true),
        "no" | "false" | "off" | "0" | "n" | "f" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_read_as_iproute2_does() {
        let normalized = |text| prefix(text).map(|prefix| prefix.to_string());
        for (text, expected) in [
            ("10/8", "10.0.0.0/8"),
            ("10.100/16", "10.100.0.0/16"),
            ("10.100.0.0/255.255.0.0", "10.100.0.0/16"),
            ("10.1.2.3", "10.1.2.3/32"),
            ("fd00::/64", "fd00::/64"),
            ("fd00::1", "fd00::1/128"),
        ] {
            assert_eq!(normalized(text).as_deref(), Some(expected), "{text}");
        }
        for text in ["10", "10./8", "10.0.0.0/33", "10.0.0.0/255.0.255.0", "fd00::/129", "/8", "", "a/8"] {
            assert_eq!(normalized(text), None, "{text}");
        }
    }

    #[test]
    fn numbers_may_be_hexadecimal() {
        assert_eq!(number::<u32>("0x1b59"), Some(7001));
        assert_eq!(number::<u32>("7001"), Some(7001));
        assert_eq!(number::<u32>("0x1ffffffff"), None);
        assert_eq!(number::<u32>("-1"), None);
    }
}
