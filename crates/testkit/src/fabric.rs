//! Fabrics that tests of several crates use.

/// Two gateways between two networks, a server with an address for each of them, and a client; of
/// both families.
pub const WITH_ALIASES: &str = r#"
schema = "clearstream.fabric"
version = 1
name = "small"
[[network]]
name = "near"
prefixes = ["10.0.0.0/24", "fd00::/64"]
[[network]]
name = "far"
prefixes = ["10.9.0.0/24", "fd09::/64"]
[[class]]
name = "gateway"
role = "gateway"
hosts = ["there", "gw2"]
[[class.link]]
network = "near"
interface = "eth0"
addresses = ["10.0.0.[2-3]", "fd00::[2-3]"]
[[class.link]]
network = "far"
interface = "eth1"
addresses = ["10.9.0.[2-3]", "fd09::[2-3]"]
[[class]]
name = "storage"
role = "storage"
hosts = ["here"]
[[class.link]]
network = "near"
interface = "eth0"
addresses = ["10.0.0.1", "fd00::1"]
alias-addresses = ["10.0.0.[211-212]", "fd00::[211-212]"]
[[class]]
name = "compute"
role = "compute"
hosts = ["c1"]
[[class.link]]
network = "far"
interface = "eth0"
addresses = ["10.9.0.1", "fd09::1"]
[[route]]
between = ["near", "far"]
via = ["gateway"]
return-path = "alias"
"#;
