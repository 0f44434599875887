//! Names that the Ansible play and its variables agree on.

/// Group of all hosts in the inventory.
pub(crate) const ALL_HOSTS: &str = "clearstream_routes";
/// IPoIB modes: `ib0 connected`.
pub(crate) const MODES: &str = "clearstream_route_modes";
/// Arguments of `ip` for links and addresses.
pub(crate) const LINKS: &str = "clearstream_route_links";
/// Arguments of `ip` for nexthops and routes.
pub(crate) const ROUTES: &str = "clearstream_route_routes";
/// Arguments of `ip -4` for rules.
pub(crate) const RULES4: &str = "clearstream_route_rules4";
/// Arguments of `ip -6` for rules.
pub(crate) const RULES6: &str = "clearstream_route_rules6";
/// Statements of nftables that mark connections.
pub(crate) const MARKS: &str = "clearstream_route_marks";
/// The marks, as a set of nftables.
pub(crate) const MARK_SET: &str = "clearstream_route_mark_set";
/// Sysctls by name.
pub(crate) const SYSCTLS: &str = "clearstream_route_sysctls";
