//! A small fabric for unit tests: gateways between a compute and a storage
//! network, IPv4 and IPv6, with alias addresses on the storage hosts.

use std::path::Path;

use clearstream_schema::fabric::{FabricFile, Multipath, ReturnPath, ReversePathFilter};

use super::{Fabric, parse};

/// What a test varies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) gateway_count: usize,
    pub(crate) server_count: usize,
    pub(crate) client_count: usize,
    /// Weight of each gateway.
    pub(crate) weight: u16,
    pub(crate) return_path: ReturnPath,
    pub(crate) multipath: Multipath,
    /// Of clients and servers.
    pub(crate) rp_filter: Option<ReversePathFilter>,
}

impl Shape {
    /// Two servers and three clients.
    pub(crate) fn new(gateway_count: usize, return_path: ReturnPath, multipath: Multipath) -> Self {
        Self {
            gateway_count,
            server_count: 2,
            client_count: 3,
            weight: 1,
            return_path,
            multipath,
            rp_filter: None,
        }
    }

    /// Networks `a` (10.1.0.0/16) and `b` (10.2.0.0/16); gateways `g1`...,
    /// servers `s1`... on `b`, clients `c1`... on `a`.
    pub(crate) fn fabric(self) -> Fabric {
        let Self { gateway_count, server_count, client_count, weight, .. } = self;
        let text = format!(
            r#"
schema = "clearstream.fabric"
version = 1
name = "made"
[[network]]
name = "a"
prefixes = ["10.1.0.0/16", "fd01::/64"]
[[network]]
name = "b"
prefixes = ["10.2.0.0/16", "fd02::/64"]
[[class]]
name = "g"
role = "gateway"
hosts = ["g[1-{gateway_count}]"]
weight = {weight}
[[class.link]]
network = "a"
interface = "a0"
addresses = ["10.1.0.1+", "fd01::1+"]
[[class.link]]
network = "b"
interface = "b0"
addresses = ["10.2.0.1+", "fd02::1+"]
[[class]]
name = "s"
role = "storage"
hosts = ["s[1-{server_count}]"]
[[class.link]]
network = "b"
interface = "b0"
addresses = ["10.2.1.1+", "fd02::1:1+"]
alias-addresses = ["10.2.2.1+", "fd02::2:1+"]
[[class]]
name = "c"
role = "compute"
hosts = ["c[1-{client_count}]"]
[[class.link]]
network = "a"
interface = "a0"
addresses = ["10.1.1.1+", "fd01::1:1+"]
[[route]]
between = ["a", "b"]
via = ["g"]
"#
        );
        let mut file: FabricFile = toml::from_str(&text).unwrap();
        file.routes[0].return_path = self.return_path;
        file.routes[0].multipath = self.multipath;
        for class in file.classes.iter_mut().filter(|class| class.name != "g") {
            class.rp_filter = self.rp_filter;
        }
        parse(Path::new("made.toml"), &toml::to_string(&file).unwrap()).unwrap()
    }
}
