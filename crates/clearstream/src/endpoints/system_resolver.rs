//! Names that only the host's own C library can resolve. A static program supports
//! hosts(5) and DNS; the other services of nsswitch.conf(5), such as LDAP, mDNS
//! or the name of the host itself, are libraries that it cannot load.

use std::{net::IpAddr, time::Duration};

use clearstream_sys::program::Program;

/// Whether this program is linked statically.
pub(super) const STATIC: bool = cfg!(target_feature = "crt-static");

/// Time for a name: that of three servers that do not respond, each asked twice (resolv.conf(5)).
pub(super) const RESOLVER_TIMEOUT: Duration = Duration::from_secs(30);

/// The addresses that getent(1) of this host has for a name, in its order (that
/// of getaddrinfo(3)); none where it knows none, or is not there.
pub(super) fn by_getent(name: &str) -> Vec<IpAddr> {
    let output = Program::new("getent").args(["ahosts", "--", name]).within(RESOLVER_TIMEOUT).run();
    output.map_or_else(|_| Vec::new(), |output| addresses(&String::from_utf8_lossy(&output.stdout)))
}

/// `192.0.2.1  STREAM dtn2`: a line per address and socket type.
fn addresses(text: &str) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for line in text.lines() {
        let mut fields = line.split_whitespace();
        if let (Some(address), Some("STREAM")) = (fields.next(), fields.next())
            && let Ok(address) = address.parse()
        {
            found.push(address);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_is_taken_once_and_in_order() {
        let text = "2001:db8::7     STREAM dtn2.example\n2001:db8::7     DGRAM\n2001:db8::7     RAW\n\
                    192.0.2.7       STREAM\n192.0.2.7       DGRAM\nfe80::1%eth0    STREAM\n";
        let expected: Vec<IpAddr> =
            ["2001:db8::7", "192.0.2.7"].map(|text| text.parse().expect("an address")).into();
        assert_eq!(addresses(text), expected, "an address with a zone is no address of a remote host");
        assert!(addresses("").is_empty());
    }

    #[test]
    fn the_host_knows_itself() {
        let found = by_getent("localhost");
        assert!(!found.is_empty() && found.iter().all(IpAddr::is_loopback), "{found:?}");
        assert!(by_getent("no-such-host.invalid").is_empty());
    }
}
