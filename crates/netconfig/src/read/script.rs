//! Scripts that call `ip`, batches for `ip -batch`, and the output of `ip`. The first
//! tokens of a line decide its kind, so that one file may hold several kinds: notes
//! of an administrator often do.

use clearstream_schema::{
    fabric::InfinibandMode,
    prefix::Prefix,
    routing::{Located, RouteAction},
};
use clearstream_tune::syntax;

use super::{
    Source,
    detect::last_part,
    gathering::{Gathering, place},
    ip_arguments::{self, Context, ParseError, Token},
    statements::{Style, divide, is_ip, joined, statements, style_of},
    values,
};

/// Reads a script, a batch or printed text. `ipv6` is the family of arguments that
/// imply none.
pub(crate) fn read(source: &Source, ipv6: Option<bool>, gathering: &mut Gathering) {
    let style = style_of(&source.text);
    if style == Style::Commands {
        sysctls(source, gathering);
    }
    let mut state = State { file: &source.path, ipv6 };
    for statement in statements(&source.text, style) {
        if let Err(ParseError(reason)) = state.statement(&statement, gathering) {
            let line = statement.first().map_or(1, |token| token.line);
            gathering.unread(state.file, line, &joined(&statement), reason);
        }
    }
}

/// Reads one command that stands in a file of another kind.
pub(crate) fn line(file: &str, line: u32, text: &str, gathering: &mut Gathering) {
    let mut state = State { file, ipv6: None };
    let tokens = ip_arguments::split(text, line);
    for statement in divide(&tokens, Style::Commands) {
        if let Err(ParseError(reason)) = state.statement(&statement, gathering) {
            gathering.unread(file, line, &joined(&statement), reason);
        }
    }
}

/// `sysctl -w` and `echo ... > /proc/sys/...`, as the linter of sysctls reads them.
fn sysctls(source: &Source, gathering: &mut Gathering) {
    if !source.text.contains("sysctl") && !source.text.contains("proc/sys/") {
        return;
    }
    for statement in syntax::parse(&source.text).statements {
        gathering.sysctl(&statement.key, &statement.value, place(&source.path, statement.line));
    }
}

struct State<'a> {
    file: &'a str,
    ipv6: Option<bool>,
}

impl State<'_> {
    fn statement(&mut self, statement: &[Token<'_>], gathering: &mut Gathering) -> Result<(), ParseError> {
        let mut rest = statement;
        while let [first, others @ ..] = rest {
            let is_prefix =
                matches!(first.text, "sudo" | "exec" | "up" | "post-up" | "then" | "do" | "else" | "-");
            if !is_prefix {
                break;
            }
            rest = others;
        }
        let [first, others @ ..] = rest else { return Ok(()) };
        match first.text {
            token if is_ip(token) => self.command(others, gathering),
            // The object of a batch line.
            "route" | "rule" | "nexthop" | "address" | "link" | "addr"
                if others.first().is_some_and(|token| verb(token.text).is_some()) =>
            {
                self.command(rest, gathering)
            }
            "id" => self.nexthop(rest, false, gathering),
            "sysctl" | "set" | "exit" | "true" | ":" | "fi" | "done" | "export" => Ok(()),
            "echo" => self.echo(others, gathering),
            token if last_part(token) == "sysctl" || token.starts_with("PATH=") => Ok(()),
            token if token.ends_with(':') && token.trim_end_matches(':').parse::<u32>().is_ok() => {
                match others.first() {
                    Some(next) if next.text.ends_with(':') => self.printed_link(others, gathering),
                    // One line of `ip -oneline address`.
                    Some(_) if others.get(1).is_some_and(|token| matches!(token.text, "inet" | "inet6")) => {
                        self.printed_link(others, gathering)
                    }
                    _ => self.rule(rest, gathering),
                }
            }
            token if is_route_start(token) => self.route(rest, gathering),
            token => Err(ParseError(format!("\"{token}\" begins nothing that sets routes"))),
        }
    }

    fn command(&mut self, tokens: &[Token<'_>], gathering: &mut Gathering) -> Result<(), ParseError> {
        let mut tokens = tokens;
        let outside = self.ipv6;
        while let [first, others @ ..] = tokens {
            match first.text {
                "-4" => self.ipv6 = Some(false),
                "-6" => self.ipv6 = Some(true),
                "-force" | "-o" | "-d" | "-s" | "-N" | "-br" | "-details" | "-oneline" | "-j" | "-p" => {}
                option if option.starts_with('-') => {
                    return Err(ParseError(format!("\"ip {option}\" is not supported")));
                }
                _ => break,
            }
            tokens = others;
        }
        let done = self.object(tokens, gathering);
        self.ipv6 = outside;
        done
    }

    fn object(&mut self, tokens: &[Token<'_>], gathering: &mut Gathering) -> Result<(), ParseError> {
        let [object, rest @ ..] = tokens else { return Ok(()) };
        let object = object_name(object.text)
            .ok_or_else(|| ParseError(format!("\"ip {}\" is not read here", object.text)))?;
        let [command, rest @ ..] = rest else { return Ok(()) };
        let verb = verb(command.text)
            .ok_or_else(|| ParseError(format!("\"ip {object} {}\" is not read here", command.text)))?;
        match (object, verb) {
            (_, Verb::Show) => Ok(()),
            ("route", Verb::Add | Verb::Replace) => self.route(rest, gathering),
            ("route", Verb::Delete) => self.delete_route(rest, gathering),
            ("rule", Verb::Add | Verb::Replace) => self.rule(rest, gathering),
            ("rule", Verb::Delete) => self.delete_rule(rest, gathering),
            ("nexthop", Verb::Add | Verb::Replace) => self.nexthop(rest, verb == Verb::Replace, gathering),
            ("nexthop", Verb::Delete) => {
                let id = rest.get(1).and_then(|token| values::number::<u32>(token.text));
                gathering.routing.nexthops.retain(|known| Some(known.id) != id);
                Ok(())
            }
            ("address", Verb::Add | Verb::Replace) => self.address(rest, gathering),
            ("link", Verb::Set) => self.link(rest, gathering),
            (object, _) => Err(ParseError(format!("\"ip {object} {}\" is not supported", command.text))),
        }
    }

    fn context<'c>(&'c self, gathering: &'c Gathering) -> Context<'c> {
        Context { file: self.file, names: &gathering.names, ipv6: self.ipv6, device: None }
    }

    fn route(&self, tokens: &[Token<'_>], gathering: &mut Gathering) -> Result<(), ParseError> {
        match ip_arguments::route(tokens, self.context(gathering))? {
            Some(parsed) => {
                gathering.left_out(self.file, &parsed.left_out);
                gathering.route(parsed.value);
            }
            None => self.address_by_route(tokens, gathering),
        }
        Ok(())
    }

    /// The kernel's route to the network of an address names the address:
    /// `10.0.0.0/24 dev ib0 proto kernel scope link src 10.0.0.1`.
    fn address_by_route(&self, tokens: &[Token<'_>], gathering: &mut Gathering) {
        let network = tokens.first().and_then(|token| Some((values::prefix(token.text)?, token.line)));
        let source = value_of(tokens, "src").and_then(values::address);
        if let (Some((network, line)), Some(address), Some(device)) =
            (network, source, value_of(tokens, "dev"))
            && network.contains(address)
        {
            let prefix = Prefix { address, length: network.length };
            gathering.address(device, prefix, place(self.file, line));
        }
    }

    fn rule(&self, tokens: &[Token<'_>], gathering: &mut Gathering) -> Result<(), ParseError> {
        if let Some(parsed) = ip_arguments::rule(tokens, self.context(gathering))? {
            gathering.left_out(self.file, &parsed.left_out);
            gathering.rule(parsed.value);
        }
        Ok(())
    }

    fn nexthop(
        &self,
        tokens: &[Token<'_>],
        replaces: bool,
        gathering: &mut Gathering,
    ) -> Result<(), ParseError> {
        let parsed = ip_arguments::nexthop(tokens, self.context(gathering))?;
        gathering.left_out(self.file, &parsed.left_out);
        gathering.nexthop(parsed.value, replaces);
        Ok(())
    }

    /// A script that deletes before it adds means what it adds.
    fn delete_route(&self, tokens: &[Token<'_>], gathering: &mut Gathering) -> Result<(), ParseError> {
        // `ip route del 10.0.0.0/8` needs no gateway: any will do to read it.
        let named = tokens.iter().any(|token| matches!(token.text, "via" | "dev" | "nhid" | "nexthop"));
        let context = Context { device: (!named).then_some("any"), ..self.context(gathering) };
        let Ok(Some(parsed)) = ip_arguments::route(tokens, context) else { return Ok(()) };
        let gone = parsed.value;
        gathering.routing.routes.retain(|known| {
            (known.destination, known.table) != (gone.destination, gone.table)
                || gone.metric != 0 && known.metric != gone.metric
                || named && !same_action(&known.action, &gone.action)
        });
        Ok(())
    }

    fn delete_rule(&self, tokens: &[Token<'_>], gathering: &mut Gathering) -> Result<(), ParseError> {
        let has_action =
            tokens.iter().any(|token| matches!(token.text, "table" | "lookup" | "goto" | "blackhole"));
        let mut all = tokens.to_vec();
        if !has_action {
            all.extend(tokens.first().map(|first| Token { text: "nop", line: first.line }));
        }
        let Ok(Some(parsed)) = ip_arguments::rule(&all, self.context(gathering)) else { return Ok(()) };
        let gone = parsed.value;
        gathering.routing.rules.retain(|known| {
            gone.priority.is_some() && known.priority != gone.priority
                || gone.selector != Default::default() && known.selector != gone.selector
                || has_action && known.action != gone.action
                || gone.priority.is_none() && !has_action && gone.selector == Default::default()
        });
        Ok(())
    }

    /// `ip address replace 10.0.0.1/24 dev ib0`.
    fn address(&self, tokens: &[Token<'_>], gathering: &mut Gathering) -> Result<(), ParseError> {
        let device =
            value_of(tokens, "dev").ok_or_else(|| ParseError("an address without \"dev\"".to_owned()))?;
        let token = tokens
            .iter()
            .find(|token| values::prefix(token.text).is_some())
            .ok_or_else(|| ParseError("no address with prefix length".to_owned()))?;
        if let Some(prefix) = values::prefix(token.text) {
            gathering.address(device, prefix, place(self.file, token.line));
        }
        Ok(())
    }

    /// `ip link set dev ib0 mtu 65520 up`, in any order; transmit queues are read
    /// with the sysctls.
    fn link(&self, tokens: &[Token<'_>], gathering: &mut Gathering) -> Result<(), ParseError> {
        let (mut device, mut mtu) = (value_of(tokens, "dev"), None);
        let mut rest = tokens.iter();
        while let Some(token) = rest.next() {
            match token.text {
                "up" => {}
                "dev" | "txqueuelen" | "txqlen" | "qlen" => {
                    rest.next();
                }
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
        Ok(())
    }

    /// `echo connected > /sys/class/net/ib0/mode`, with or without the blank.
    fn echo(&self, tokens: &[Token<'_>], gathering: &mut Gathering) -> Result<(), ParseError> {
        let text = joined(tokens);
        let path = tokens.last().map(|token| token.text.trim_start_matches('>')).unwrap_or_default();
        let interface = path
            .strip_prefix('/')
            .and_then(|path| path.strip_prefix("sys/class/net/"))
            .and_then(|rest| rest.strip_suffix("/mode"));
        let mode = tokens.first().and_then(|token| infiniband_mode(token.text));
        if let (Some(interface), Some(mode), Some(token)) = (interface, mode, tokens.first()) {
            let place = Some(place(self.file, token.line));
            gathering.interface(interface).infiniband_mode = Some(Located { value: mode, place });
        } else if !text.contains("proc/sys/") && text.contains('/') {
            return Err(ParseError("what is written there is not supported".to_owned()));
        }
        Ok(())
    }

    /// `2: ib0: <BROADCAST,UP> mtu 2044 ... inet 10.0.0.1/24 ...`, a block of
    /// `ip address show` in one statement.
    fn printed_link(&self, tokens: &[Token<'_>], gathering: &mut Gathering) -> Result<(), ParseError> {
        let Some(name) = tokens.first() else { return Ok(()) };
        let name = name.text.trim_end_matches(':');
        let name = name.split('@').next().unwrap_or(name).to_owned();
        if name == "lo" {
            return Ok(());
        }
        let mut rest = tokens.iter();
        while let Some(token) = rest.next() {
            match token.text {
                "mtu" => {
                    if let Some(bytes) = rest.next().and_then(|token| values::number(token.text)) {
                        gathering.mtu(&name, bytes, place(self.file, token.line));
                    }
                }
                "link/ether" | "link/infiniband" => {
                    let address = rest.next().map(|token| token.text.to_owned());
                    gathering.interface(&name).link_address = address;
                }
                "inet" | "inet6" => {
                    let prefix = rest.next().and_then(|token| values::prefix(token.text));
                    // Link-local addresses are the kernel's (RFC 4291, 2.5.6).
                    if let Some(prefix) = prefix.filter(|prefix| !is_link_local(*prefix)) {
                        gathering.address(&name, prefix, place(self.file, token.line));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn is_link_local(prefix: clearstream_schema::prefix::Prefix) -> bool {
    matches!(prefix.address, std::net::IpAddr::V6(address) if address.segments()[0] & 0xffc0 == 0xfe80)
}

fn same_action(one: &RouteAction, other: &RouteAction) -> bool {
    match (one, other) {
        (RouteAction::Gateways(one), RouteAction::Gateways(other)) => {
            one.iter().map(|hop| hop.via).eq(other.iter().map(|hop| hop.via))
        }
        (one, other) => one == other,
    }
}

fn value_of<'a>(tokens: &[Token<'a>], name: &str) -> Option<&'a str> {
    let at = tokens.iter().position(|token| token.text == name)?;
    tokens.get(at + 1).map(|token| token.text)
}

/// IPoIB modes as sysfs has them.
pub(crate) fn infiniband_mode(token: &str) -> Option<InfinibandMode> {
    match token.to_ascii_lowercase().as_str() {
        "connected" => Some(InfinibandMode::Connected),
        "datagram" => Some(InfinibandMode::Datagram),
        _ => None,
    }
}

fn is_route_start(token: &str) -> bool {
    matches!(token, "default" | "to")
        || ip_arguments::TYPES.contains(&token)
        || ip_arguments::type_by_number(token).is_some()
        || values::prefix(token).is_some()
}

/// Objects by the abbreviations that ip(8) takes.
fn object_name(token: &str) -> Option<&'static str> {
    let begins = |full: &str, least: usize| token.len() >= least && full.starts_with(token);
    match token {
        _ if begins("address", 1) => Some("address"),
        _ if begins("rule", 2) => Some("rule"),
        _ if begins("route", 1) => Some("route"),
        _ if begins("link", 1) => Some("link"),
        _ if begins("nexthop", 3) => Some("nexthop"),
        _ => None,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Add,
    Replace,
    Delete,
    Set,
    Show,
}

/// What to do, by the abbreviations that ip(8) takes.
fn verb(token: &str) -> Option<Verb> {
    let begins = |full: &str| !token.is_empty() && full.starts_with(token);
    match token {
        _ if begins("add") || begins("append") || begins("prepend") => Some(Verb::Add),
        _ if begins("replace") || begins("change") || token == "chg" => Some(Verb::Replace),
        _ if begins("delete") => Some(Verb::Delete),
        "set" => Some(Verb::Set),
        _ if begins("show") || begins("list") || begins("get") || token == "lst" => Some(Verb::Show),
        _ => None,
    }
}
