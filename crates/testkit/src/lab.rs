//! Lab files for tests.

/// A lab file with the hosts `here` (10.0.0.1, fd00::1) and `there` (10.0.0.2, fd00::2), each with `eth0` on
/// one link. `link` is additional TOML of the link, such as `mtu = 1500`.
pub fn two_hosts(name: &str, link: &str) -> String {
    format!(
        r#"schema = "clearstream.lab"
version = 1
name = "{name}"
title = "a test lab"
[[host]]
name = "here"
[[host]]
name = "there"
[[link]]
{link}
[[link.ends]]
host = "here"
interface = "eth0"
addresses = ["10.0.0.1/24", "fd00::1/64"]
[[link.ends]]
host = "there"
interface = "eth0"
addresses = ["10.0.0.2/24", "fd00::2/64"]
"#
    )
}
