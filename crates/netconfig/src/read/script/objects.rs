//! Objects of `ip` that a command adds, changes or removes.

use clearstream_schema::{
    prefix::Prefix,
    routing::{RouteAction, RuleEntry, files::Loader},
};

use super::{State, Verb, is_route_start, value_of};
use crate::read::{
    gathering::{Gathering, place},
    ip_arguments::{self, Context, ParseError, Token},
    statements::joined,
    values,
};

impl State<'_> {
    pub(super) fn add_route(&self, tokens: &[Token<'_>], verb: Verb, gathering: &mut Gathering) {
        if verb == Verb::Append {
            gathering.loader = Loader::Append;
        }
        match ip_arguments::route(tokens, self.context(gathering)) {
            Ok(Some(parsed)) => {
                // In one of two branches it may not be the one that takes the place of the other.
                let replaces = verb == Verb::Replace && gathering.loader != Loader::Conditional;
                parsed.gather(self.file, replaces, gathering);
            }
            Ok(None) => self.address_by_route(tokens, gathering),
            Err(ParseError(reason)) => {
                let line = tokens.first().map_or(1, |token| token.line);
                gathering.unread(self.file, line, &format!("ip route add {}", joined(tokens)), &reason);
                // The route is there: what it is not known to be must not be missed.
                let table = match value_of(tokens, "table") {
                    Some(name) => gathering.names.table(name),
                    None if value_of(tokens, "vrf").is_some() => None,
                    None => Some(clearstream_schema::routing::MAIN_TABLE),
                };
                let destination = tokens.iter().find(|token| is_route_start(token.text));
                let destination = destination.and_then(|token| match token.text {
                    "default" => Some(values::everything(self.ipv6.unwrap_or(false))),
                    text => values::prefix(text),
                });
                gathering.unknown_route(table, destination, &reason);
            }
        }
    }

    /// A line that `ip route show` printed.
    pub(super) fn printed_route(
        &self,
        tokens: &[Token<'_>],
        gathering: &mut Gathering,
    ) -> Result<(), ParseError> {
        if self.shown.is_lookup {
            return Ok(());
        }
        if self.shown.is_of_unknown_table {
            let destination = tokens.iter().find_map(|token| values::prefix(token.text));
            gathering.unknown_route(None, destination, "of a table whose number was not given");
            return Err(ParseError("the number of its table was not given".to_owned()));
        }
        let mut all = tokens.to_vec();
        let number = self.shown.table.map(|table| table.to_string()).unwrap_or_default();
        if let (false, Some(first)) =
            (number.is_empty() || value_of(tokens, "table").is_some(), tokens.first())
        {
            // Before the next hops, which end the arguments of the route.
            let at = tokens.iter().position(|token| token.text == "nexthop").unwrap_or(tokens.len());
            let line = first.line;
            all.splice(at..at, [Token { text: "table", line }, Token { text: &number, line }]);
        }
        let context = Context { ipv6: self.ipv6.or(self.shown.ipv6), ..self.context(gathering) };
        match ip_arguments::route(&all, context)? {
            Some(parsed) => parsed.gather(self.file, false, gathering),
            None => self.address_by_route(tokens, gathering),
        }
        Ok(())
    }

    /// A line of `ip rule show`.
    pub(super) fn rule(&self, tokens: &[Token<'_>], gathering: &mut Gathering) -> Result<(), ParseError> {
        let ipv6 = self.ipv6.or(self.shown.ipv6);
        let context = Context { ipv6, ..self.context(gathering) };
        match ip_arguments::rule(tokens, context) {
            Ok(parsed) => gather_rule(self.file, parsed, gathering),
            Err(error) if tokens.iter().all(|token| token.text != "from") => return Err(error),
            Err(ParseError(reason)) => self.open_rule(tokens, ipv6, "", &reason, gathering),
        }
        Ok(())
    }

    /// `ip rule add`.
    pub(super) fn add_rule(&self, tokens: &[Token<'_>], gathering: &mut Gathering) {
        match ip_arguments::rule(tokens, self.context(gathering)) {
            Ok(parsed) => gather_rule(self.file, parsed, gathering),
            Err(ParseError(reason)) => {
                self.open_rule(tokens, self.ipv6, "ip rule add ", &reason, gathering);
            }
        }
    }

    /// A rule that is not understood still leads to its table.
    fn open_rule(
        &self,
        tokens: &[Token<'_>],
        ipv6: Option<bool>,
        command: &str,
        reason: &str,
        gathering: &mut Gathering,
    ) {
        let line = tokens.first().map_or(1, |token| token.line);
        gathering.unread(self.file, line, &format!("{command}{}", joined(tokens)), reason);
        ip_arguments::open_rule(tokens, ipv6, place(self.file, line), gathering);
    }

    pub(super) fn nexthop(
        &self,
        tokens: &[Token<'_>],
        replaces: bool,
        gathering: &mut Gathering,
    ) -> Result<(), ParseError> {
        match ip_arguments::nexthop(tokens, self.context(gathering)) {
            Ok(Ok(parsed)) => {
                gathering.left_out(self.file, &parsed.left_out);
                gathering.nexthop(parsed.value, replaces);
            }
            Ok(Err(id)) => {
                gathering.understood();
                gathering.facts().unknown_nexthops.insert(id);
            }
            Err(error) => {
                let id: Option<u32> = value_of(tokens, "id").and_then(values::number);
                gathering.facts().unknown_nexthops.extend(id);
                return Err(error);
            }
        }
        Ok(())
    }

    /// A script that deletes before it adds means what it adds.
    pub(super) fn delete_route(&self, tokens: &[Token<'_>], gathering: &mut Gathering) {
        // `ip route del 10.0.0.0/8` needs no gateway: any will do to read it.
        let named = tokens.iter().any(|token| matches!(token.text, "via" | "dev" | "nhid" | "nexthop"));
        let context = Context { device: (!named).then_some("any"), ..self.context(gathering) };
        let Ok(Some(parsed)) = ip_arguments::route(tokens, context) else { return };
        let gone = parsed.value;
        gathering.routing.routes.retain(|known| {
            (known.destination, known.table) != (gone.destination, gone.table)
                || gone.metric != 0 && known.metric != gone.metric
                || named && !same_action(&known.action, &gone.action)
        });
    }

    pub(super) fn delete_rule(&self, tokens: &[Token<'_>], gathering: &mut Gathering) {
        let has_action =
            tokens.iter().any(|token| matches!(token.text, "table" | "lookup" | "goto" | "blackhole"));
        let mut all = tokens.to_vec();
        if !has_action {
            all.extend(tokens.first().map(|first| Token { text: "nop", line: first.line }));
        }
        let Ok(Some(parsed)) = ip_arguments::rule(&all, self.context(gathering)) else { return };
        let gone = parsed.value;
        gathering.routing.rules.retain(|known| {
            gone.priority.is_some() && known.priority != gone.priority
                || gone.selector != Default::default() && known.selector != gone.selector
                || has_action && known.action != gone.action
                || gone.priority.is_none() && !has_action && gone.selector == Default::default()
        });
    }

    /// `ip address replace 10.0.0.1/24 dev ib0`.
    pub(super) fn address(&self, tokens: &[Token<'_>], gathering: &mut Gathering) -> Result<(), ParseError> {
        let device =
            value_of(tokens, "dev").ok_or_else(|| ParseError("an address without \"dev\"".to_owned()))?;
        let found = tokens.iter().find_map(|token| Some((values::prefix(token.text)?, token.line)));
        let Some((prefix, line)) = found else {
            // One that a shell fills in.
            gathering.dynamic(device, self.ipv6.unwrap_or(false));
            return Err(ParseError("no address with prefix length".to_owned()));
        };
        gathering.address(device, prefix, place(self.file, line));
        Ok(())
    }

    pub(super) fn delete_address(&self, tokens: &[Token<'_>], gathering: &mut Gathering) {
        let found: Option<Prefix> = tokens.iter().find_map(|token| values::prefix(token.text));
        if let (Some(device), Some(prefix)) = (value_of(tokens, "dev"), found) {
            let mut interfaces = gathering.routing.interfaces.iter_mut();
            if let Some(interface) = interfaces.find(|known| known.name == device) {
                interface.addresses.retain(|known| known.value.address != prefix.address);
            }
        }
    }

    /// `ip route flush table 7`, `ip rule flush`, `ip address flush dev eth0`: what a script begins with.
    pub(super) fn flush(&self, object: &str, tokens: &[Token<'_>], gathering: &mut Gathering) {
        let routing = &mut gathering.routing;
        match object {
            "route" => match value_of(tokens, "table") {
                Some("all") => routing.routes.clear(),
                Some("cache") => {}
                Some(name) => {
                    let table = gathering.names.table(name);
                    routing.routes.retain(|route| Some(route.table) != table);
                }
                None => {}
            },
            "rule" => routing.rules.retain(|rule| self.ipv6.is_some_and(|ipv6| ipv6 != rule.ipv6)),
            "address" => {
                let device = value_of(tokens, "dev").or_else(|| tokens.last().map(|token| token.text));
                for interface in routing.interfaces.iter_mut().filter(|it| Some(it.name.as_str()) == device) {
                    interface.addresses.clear();
                }
            }
            _ => {}
        }
    }

    /// `ip link set dev ib0 mtu 65520 up`, in any order; transmit queues are read
    /// with the sysctls.
    pub(super) fn link(&self, tokens: &[Token<'_>], gathering: &mut Gathering) -> Result<(), ParseError> {
        let (mut device, mut mtu, mut master) = (value_of(tokens, "dev"), None, None);
        let mut rest = tokens.iter();
        while let Some(token) = rest.next() {
            match token.text {
                "up" | "down" | "nomaster" => {}
                "dev" | "txqueuelen" | "txqlen" | "qlen" | "address" | "arp" | "multicast" | "alias"
                | "name" | "group" | "promisc" | "allmulticast" => {
                    rest.next();
                }
                "master" | "vrf" => master = rest.next().map(|token| token.text),
                "mtu" => {
                    let bytes: Option<u32> = rest.next().and_then(|token| values::number(token.text));
                    let bytes =
                        bytes.ok_or_else(|| ParseError("\"mtu\" needs a number of bytes".to_owned()))?;
                    mtu = Some((bytes, token.line));
                }
                name if device.is_none() => device = Some(name),
                other => return Err(ParseError(format!("\"ip link set ... {other}\" is not supported"))),
            }
        }
        let device = device.ok_or_else(|| ParseError("no interface is named".to_owned()))?;
        if let Some((bytes, line)) = mtu {
            gathering.mtu(device, bytes, place(self.file, line));
        }
        if let Some(table) = master.and_then(|master| gathering.vrfs.get(master).copied()) {
            gathering.vrf_member(device, table);
        }
        Ok(())
    }

    /// `ip link add vrf-blue type vrf table 10`.
    pub(super) fn add_link(tokens: &[Token<'_>], gathering: &mut Gathering) {
        let is_vrf = value_of(tokens, "type") == Some("vrf");
        let name = value_of(tokens, "name").or_else(|| value_of(tokens, "dev"));
        let name = name.or_else(|| tokens.first().map(|token| token.text));
        let table = value_of(tokens, "table").and_then(|table| gathering.names.table(table));
        if let (true, Some(name), Some(table)) = (is_vrf, name, table) {
            gathering.vrf(name, table);
        }
    }
}

fn gather_rule(file: &str, parsed: Option<ip_arguments::Parsed<RuleEntry>>, gathering: &mut Gathering) {
    gathering.understood();
    if let Some(parsed) = parsed {
        gathering.left_out(file, &parsed.left_out);
        gathering.rule(parsed.value);
    }
}

fn same_action(one: &RouteAction, other: &RouteAction) -> bool {
    match (one, other) {
        (RouteAction::Gateways(one), RouteAction::Gateways(other)) => {
            one.iter().map(|hop| hop.via).eq(other.iter().map(|hop| hop.via))
        }
        (one, other) => one == other,
    }
}
