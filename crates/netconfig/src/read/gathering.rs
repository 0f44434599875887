//! What has been read so far.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use clearstream_schema::{
    prefix::Prefix,
    routing::{
        HostRouting, Located, Nexthop, Place, RouteAction, RouteEntry, RoutingInterface, RuleAction,
        RuleEntry, RuleSelector,
        files::{FileFacts, Loader, Refused, UnknownRoute},
    },
    tune::Severity,
};

use super::{Unread, names::Names};

/// What has been read of one host.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    pub(crate) routing: HostRouting,
    pub(crate) names: Names,
    /// Interfaces of `.network` files by the files' names.
    pub(crate) networks: BTreeMap<String, Vec<String>>,
    /// Tables by the names that `networkd.conf` gives them; it reads no `rt_tables`.
    pub(crate) networkd_tables: BTreeMap<String, u32>,
    /// Devices by the names of `ifcfg-` files.
    pub(crate) script_devices: BTreeMap<String, String>,
    /// The one device that has the default route (`GATEWAYDEV`).
    pub(crate) gateway_device: Option<String>,
    /// Interfaces by their link addresses, where a file states both.
    pub(crate) by_link_address: BTreeMap<String, String>,
    /// Tables of VRFs by their names.
    pub(crate) vrfs: BTreeMap<String, u32>,
    /// Paths of all files that are read.
    pub(crate) paths: Vec<String>,
    /// What brings the lines that are being read into the kernel.
    pub(crate) loader: Loader,
    /// Interfaces that belong to VRFs, with the names of these.
    pub(crate) vrf_ports: Vec<(String, String)>,
    /// Metrics of interfaces whose routes stand apart from them.
    pub(crate) interface_metrics: BTreeMap<String, u32>,
    /// Metrics that NetworkManager has given to interfaces.
    manager_metrics: BTreeSet<u32>,
    /// Next hops that were printed beside a nexthop id, by the place of their route.
    pub(crate) printed_hops: BTreeMap<Place, RouteAction>,
    /// Tables that a prompt showed, or `all` of them; of the others a rule's table was not printed.
    pub(crate) shown_tables: BTreeSet<u32>,
    pub(crate) shows_all_tables: bool,
    /// Other hosts of the same files, which hold several.
    pub(crate) others: Vec<HostRouting>,
    unread: Vec<Unread>,
    is_understood: bool,
}

impl Gathering {
    pub(crate) fn finish(mut self) -> (HostRouting, Vec<Unread>) {
        for (interface, vrf) in std::mem::take(&mut self.vrf_ports) {
            if let Some(table) = self.vrfs.get(&vrf).copied() {
                self.vrf_member(&interface, table);
            }
        }
        self.resolve_nexthops();
        (self.routing, self.unread)
    }

    /// Tables of printed rules whose routes nobody printed: not known to be empty.
    pub(crate) fn leave_open_what_was_not_printed(&mut self) {
        let is_printed = |place: &Option<Place>| place.as_ref().is_some_and(|it| it.by == Loader::Kernel);
        let routes = &self.routing.routes;
        let main = clearstream_schema::routing::MAIN_TABLE;
        if self.shows_all_tables
            || routes.iter().any(|it| it.table != main && is_printed(&it.place))
                && self.shown_tables.is_empty()
        {
            return;
        }
        let open: BTreeSet<u32> = self
            .routing
            .rules
            .iter()
            .filter(|rule| is_printed(&rule.place))
            .filter_map(|rule| match rule.action {
                RuleAction::Table(table) => Some(table),
                RuleAction::Other(_) => None,
            })
            .filter(|table| !self.shown_tables.contains(table) && routes.iter().all(|it| it.table != *table))
            .collect();
        for table in open {
            self.unknown_route(Some(table), None, "the routes of this table were not printed");
        }
    }

    /// Begins with a file.
    pub(crate) fn begin(&mut self) {
        self.loader = Loader::Command;
        self.is_understood = false;
    }

    /// A part of the file is understood, whether or not it sets anything.
    pub(crate) fn understood(&mut self) {
        self.is_understood = true;
    }

    /// Whether any part of the file is.
    pub(crate) fn is_understood(&self) -> bool {
        self.is_understood
    }

    /// How much the files have set so far, what is known at run time only among it. A file of which something was
    /// not understood and that sets nothing is not understood.
    pub(crate) fn set_count(&self) -> usize {
        let routing = &self.routing;
        let of_interfaces: usize = routing
            .interfaces
            .iter()
            .map(|it| {
                it.addresses.len() + usize::from(it.mtu.is_some()) + usize::from(it.infiniband_mode.is_some())
            })
            .sum();
        let lists =
            routing.routes.len() + routing.rules.len() + routing.nexthops.len() + routing.sysctls.len();
        let files = &routing.files;
        let known =
            files.dynamic.len() + files.refused.len() + files.marks.len() + files.unknown_nexthops.len();
        let named =
            self.vrfs.len() + self.names.count() + self.networkd_tables.len() + self.by_link_address.len();
        of_interfaces + lists + known + named + routing.connection_marks.len() + self.others.len()
    }

    /// What was not understood of a file.
    pub(crate) fn unread_of<'g>(&'g self, file: &'g str) -> impl Iterator<Item = &'g Unread> {
        self.unread.iter().filter(move |unread| unread.place.file == file)
    }

    /// Forgets the lines of a file that were not understood, since one sentence says so.
    pub(crate) fn forget_unread(&mut self, file: &str) {
        self.unread.retain(|unread| unread.place.file != file);
    }

    /// What was not understood of a part that was read by itself.
    pub(crate) fn add_unread(&mut self, unread: Vec<Unread>) {
        self.unread.extend(unread);
    }

    /// Facts beside routes and rules.
    pub(crate) fn facts(&mut self) -> &mut FileFacts {
        &mut self.routing.files
    }

    pub(crate) fn interface(&mut self, name: &str) -> &mut RoutingInterface {
        self.is_understood = true;
        let interfaces = &mut self.routing.interfaces;
        let at = interfaces.iter().position(|known| known.name == name).unwrap_or_else(|| {
            interfaces.push(RoutingInterface { name: name.to_owned(), ..RoutingInterface::default() });
            interfaces.len() - 1
        });
        #[cfg_attr(not(test), expect(clippy::indexing_slicing, reason = "it was found, or is there by now"))]
        &mut interfaces[at]
    }

    /// An address; a repeated one is held once.
    pub(crate) fn address(&mut self, interface: &str, prefix: Prefix, place: Place) {
        let place = self.loaded(place);
        let addresses = &mut self.interface(interface).addresses;
        if addresses.iter().all(|known| known.value != prefix) {
            addresses.push(Located { value: prefix, place: Some(place) });
        }
    }

    pub(crate) fn mtu(&mut self, interface: &str, bytes: u32, place: Place) {
        let place = self.loaded(place);
        self.interface(interface).mtu = Some(Located { value: bytes, place: Some(place) });
    }

    pub(crate) fn sysctl(&mut self, key: &str, value: &str, place: Place) {
        self.is_understood = true;
        let located = Located { value: value.to_owned(), place: Some(self.loaded(place)) };
        self.routing.sysctls.insert(key.to_owned(), located);
    }

    pub(crate) fn route(&mut self, mut route: RouteEntry) {
        self.is_understood = true;
        // Tools mask bits of the host, and the kernel those of IPv6; `ip` is refused for IPv4
        // (fib_table_insert, "Invalid prefix for given prefix length").
        let network = route.destination.network();
        let is_by_ip = matches!(self.loader, Loader::Command | Loader::Conditional | Loader::Append);
        if network != route.destination && is_by_ip && network.address.is_ipv4() {
            return self.refused_host_bits(&route, network);
        }
        route.destination = network;
        route.place = route.place.map(|place| self.loaded(place));
        self.routing.routes.push(route);
    }

    /// A route whose gateways the files give one by one: joins the one of the
    /// same destination, table and metric that has gateways.
    pub(crate) fn join_route(&mut self, route: RouteEntry) {
        let RouteAction::Gateways(more) = &route.action else { return self.route(route) };
        let destination = route.destination.network();
        let known = self.routing.routes.iter_mut().find(|known| {
            (known.destination, known.table, known.metric) == (destination, route.table, route.metric)
                && matches!(known.action, RouteAction::Gateways(_))
        });
        match known {
            Some(RouteEntry { action: RouteAction::Gateways(hops), .. }) => hops.extend(more.iter().cloned()),
            _ => self.route(route),
        }
    }

    /// `ip route replace`: takes the place of the route of the same destination, table and metric.
    pub(crate) fn replace_route(&mut self, route: RouteEntry) {
        let key = |route: &RouteEntry| (route.destination.network(), route.table, route.metric);
        if let Some(at) = self.routing.routes.iter().position(|known| key(known) == key(&route)) {
            self.routing.routes.remove(at);
        }
        self.route(route);
    }

    /// A route that exists, and whose table, destination or next hop is not known.
    pub(crate) fn unknown_route(&mut self, table: Option<u32>, destination: Option<Prefix>, reason: &str) {
        self.is_understood = true;
        let destination = destination.map(|destination| destination.network());
        self.facts().unknown_routes.push(UnknownRoute { table, destination, reason: reason.to_owned() });
    }

    /// The interface with a link address: by the name that another file states, else by the address itself.
    pub(crate) fn by_address(&mut self, address: &str) -> String {
        let by_files = self.by_link_address.get(address).cloned();
        let mut interfaces = self.routing.interfaces.iter();
        let known =
            interfaces.find(|it| it.link_address.as_deref() == Some(address)).map(|it| it.name.clone());
        by_files.or(known).unwrap_or_else(|| {
            self.facts().nameless.insert(address.to_owned());
            address.to_owned()
        })
    }

    /// An interface that gets addresses and routes at run time (DHCP, router advertisements).
    pub(crate) fn dynamic(&mut self, interface: &str, ipv6: bool) {
        self.interface(interface);
        if self.facts().dynamic.insert((interface.to_owned(), ipv6)) {
            let table = self.routing.files.connected_table(interface, ipv6);
            let everything = super::values::everything(ipv6);
            self.unknown_route(Some(table), Some(everything), "by DHCP or router advertisements");
        }
    }

    /// The metric that NetworkManager gives to an interface whose profile states none: the next that no other
    /// interface has.
    pub(crate) fn metric_of_manager(&mut self, default: u32) -> u32 {
        let free = (default..).find(|metric| !self.manager_metrics.contains(metric)).unwrap_or(default);
        self.manager_metrics.insert(free);
        free
    }

    /// A gateway that its route makes a neighbour.
    pub(crate) fn on_link(&mut self, via: IpAddr, interface: Option<&str>) {
        self.facts().on_link.insert((via, interface.map(str::to_owned)));
    }

    /// Forgets the addresses of an interface, as an empty assignment does.
    pub(crate) fn clear_addresses(&mut self, interface: &str) {
        self.interface(interface).addresses.clear();
    }

    /// A table of systemd-networkd by number or name.
    pub(crate) fn networkd_table(&self, text: &str) -> Option<u32> {
        let by_name = || self.networkd_tables.get(text).copied();
        let of_kernel = match text {
            "default" => Some(253),
            "main" => Some(254),
            "local" => Some(255),
            _ => None,
        };
        super::values::number(text).or(of_kernel).or_else(by_name)
    }

    /// A VRF: its table needs no rule (l3mdev of the kernel).
    pub(crate) fn vrf(&mut self, name: &str, table: u32) {
        self.is_understood = true;
        self.vrfs.insert(name.to_owned(), table);
        self.facts().vrf_tables.insert(table);
    }

    /// An interface of a VRF: the routes to its networks are in that table.
    pub(crate) fn vrf_member(&mut self, interface: &str, table: u32) {
        self.interface(interface);
        let facts = self.facts();
        facts.vrf_tables.insert(table);
        facts.vrf_members.insert(interface.to_owned(), table);
        for ipv6 in [false, true] {
            facts.connected.insert((interface.to_owned(), ipv6), table);
        }
    }

    pub(crate) fn rule(&mut self, mut rule: RuleEntry) {
        self.is_understood = true;
        rule.place = rule.place.map(|place| self.loaded(place));
        self.routing.rules.push(rule);
    }

    /// A rule of which a part is not understood: it may be of any packet. Its table is given by name or number, where it
    /// is known.
    pub(crate) fn open_rule(
        &mut self,
        place: Place,
        ipv6: bool,
        text: &str,
        table: Option<&str>,
        priority: Option<u32>,
    ) {
        let action = match table.map(|name| (name, self.names.table(name))) {
            Some((_, Some(number))) => RuleAction::Table(number),
            Some((name, None)) => RuleAction::Other(format!("table {name}")),
            None => RuleAction::Other("unknown".to_owned()),
        };
        self.rule(RuleEntry {
            ipv6,
            // A number that is not known is no missing one.
            priority: Some(priority.unwrap_or(1)),
            selector: RuleSelector { other: vec![shortened(text)], ..RuleSelector::default() },
            action,
            protocol: 0,
            place: Some(place),
        });
    }

    /// A nexthop object; `replace` of one that is there takes its place.
    pub(crate) fn nexthop(&mut self, nexthop: Nexthop, replaces: bool) {
        self.is_understood = true;
        let known = &mut self.routing.nexthops;
        let is_it =
            |known: &&mut Nexthop| known.id == nexthop.id && (replaces || known.target == nexthop.target);
        match known.iter_mut().find(is_it) {
            Some(known) => *known = nexthop,
            None => known.push(nexthop),
        }
    }

    /// What the tool or the kernel does not take.
    pub(crate) fn refused(&mut self, refused: Refused) {
        self.is_understood = true;
        let place = self.loaded(refused.place.clone());
        let text = shortened(&refused.text);
        self.facts().refused.push(Refused { place, text, ..refused });
    }

    fn refused_host_bits(&mut self, route: &RouteEntry, network: Prefix) {
        let Some(place) = route.place.clone() else { return };
        self.refused(Refused {
            what: "route",
            severity: Severity::Error,
            text: route.destination.to_string(),
            reason: format!(
                "{} is an address in {network}, and for IPv4 the kernel refuses a destination with bits behind its \
                 prefix length (\"Invalid prefix for given prefix length\"): the route is not there",
                route.destination
            ),
            advice: format!("write {network}, or {}/32 for the one address", route.destination.address),
            source: "ip-route(8); net/ipv4/fib_trie.c, fib_valid_key_len",
            place,
        });
    }

    /// Routes by nexthop objects that were printed without the list of these: by the next hops printed beside
    /// them, else not known.
    fn resolve_nexthops(&mut self) {
        let known: Vec<u32> = self.routing.nexthops.iter().map(|nexthop| nexthop.id).collect();
        for mut route in std::mem::take(&mut self.routing.routes) {
            if let RouteAction::Nexthop(id) = route.action
                && !known.contains(&id)
            {
                let printed = route.place.as_ref().and_then(|place| self.printed_hops.remove(place));
                match printed {
                    Some(action) => route.action = action,
                    None if route.place.as_ref().is_some_and(|place| place.by == Loader::Kernel)
                        || self.routing.files.unknown_nexthops.contains(&id) =>
                    {
                        let reason = format!("nexthop {id} was not given");
                        self.unknown_route(Some(route.table), Some(route.destination), &reason);
                        continue;
                    }
                    None => {}
                }
            }
            self.routing.routes.push(route);
        }
    }

    /// A place with what brings it into the kernel.
    pub(crate) fn loaded(&self, place: Place) -> Place {
        Place { by: self.loader, ..place }
    }

    /// Options of a line that have no field.
    pub(crate) fn left_out(&mut self, file: &str, left_out: &[(u32, String)]) {
        for (line, text) in left_out {
            let reason = "has no place in a routing plan; the rest of the line is read";
            self.unread(file, *line, text, reason);
        }
    }

    pub(crate) fn unread(&mut self, file: &str, line: u32, text: &str, reason: impl Into<String>) {
        self.unread.push(Unread {
            place: Place { file: file.to_owned(), line: Some(line), ..Place::default() },
            text: shortened(text),
            reason: reason.into(),
        });
    }
}

/// Text for a message: without control characters, not too long.
fn shortened(text: &str) -> String {
    let plain: String = text.trim().chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    match plain.char_indices().nth(100) {
        Some((end, _)) => format!("{}...", &plain[..end]),
        None => plain,
    }
}

/// Place in a file.
pub(crate) fn place(file: &str, line: u32) -> Place {
    Place { file: file.to_owned(), line: Some(line), ..Place::default() }
}
