//! Scripts that call `ip`, batches for `ip -batch`, and what `ip` prints. What
//! a line is follows from its first words, so that one file may hold several
//! kinds: notes of an administrator often do.

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
    statements::{Style, divide, is_ip, joined, statements, style_of},
    values,
    words::{self, Context, Misread, Word},
};

/// Reads a script, a batch or printed text. `ipv6` is the family of words that
/// do not tell.
pub(crate) fn read(source: &Source, ipv6: Option<bool>, gathering: &mut Gathering) {
    let style = style_of(&source.text);
    if style == Style::Commands {
        sysctls(source, gathering);
    }
    let mut state = State { file: &source.path, ipv6 };
    for statement in statements(&source.text, style) {
        if let Err(Misread(reason)) = state.statement(&statement, gathering) {
            let line = statement.first().map_or(1, |word| word.line);
            gathering.unread(state.file, line, &joined(&statement), reason);
        }
    }
}

/// Reads one command that stands in a file of another kind.
pub(crate) fn line(file: &str, line: u32, text: &str, gathering: &mut Gathering) {
    let mut state = State { file, ipv6: None };
    let words = words::split(text, line);
    for statement in divide(&words, Style::Commands) {
        if let Err(Misread(reason)) = state.statement(&statement, gathering) {
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
    fn statement(&mut self, statement: &[Word<'_>], gathering: &mut Gathering) -> Result<(), Misread> {
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
            word if is_ip(word) => self.command(others, gathering),
            // The object of a batch line.
            "route" | "rule" | "nexthop" | "address" | "link" | "addr"
                if others.first().is_some_and(|word| verb(word.text).is_some()) =>
            {
                self.command(rest, gathering)
            }
            "id" => self.nexthop(rest, false, gathering),
            "sysctl" | "set" | "exit" | "true" | ":" | "fi" | "done" | "export" => Ok(()),
            "echo" => self.echo(others, gathering),
            word if last_part(word) == "sysctl" || word.starts_with("PATH=") => Ok(()),
            word if word.ends_with(':') && word.trim_end_matches(':').parse::<u32>().is_ok() => {
                match others.first() {
                    Some(next) if next.text.ends_with(':') => self.printed_link(others, gathering),
                    // One line of `ip -oneline address`.
                    Some(_) if others.get(1).is_some_and(|word| matches!(word.text, "inet" | "inet6")) => {
                        self.printed_link(others, gathering)
                    }
                    _ => self.rule(rest, gathering),
                }
            }
            word if is_route_start(word) => self.route(rest, gathering),
            word => Err(Misread(format!("\"{word}\" begins nothing that sets routes"))),
        }
    }

    fn command(&mut self, words: &[Word<'_>], gathering: &mut Gathering) -> Result<(), Misread> {
        let mut words = words;
        let outside = self.ipv6;
        while let [first, others @ ..] = words {
            match first.text {
                "-4" => self.ipv6 = Some(false),
                "-6" => self.ipv6 = Some(true),
                "-force" | "-o" | "-d" | "-s" | "-N" | "-br" | "-details" | "-oneline" | "-j" | "-p" => {}
                option if option.starts_with('-') => {
                    return Err(Misread(format!("\"ip {option}\" is not followed")));
                }
                _ => break,
            }
            words = others;
        }
        let done = self.object(words, gathering);
        self.ipv6 = outside;
        done
    }

    fn object(&mut self, words: &[Word<'_>], gathering: &mut Gathering) -> Result<(), Misread> {
        let [object, rest @ ..] = words else { return Ok(()) };
        let object = object_name(object.text)
            .ok_or_else(|| Misread(format!("\"ip {}\" is not read here", object.text)))?;
        let [word, rest @ ..] = rest else { return Ok(()) };
        let verb = verb(word.text)
            .ok_or_else(|| Misread(format!("\"ip {object} {}\" is not read here", word.text)))?;
        match (object, verb) {
            (_, Verb::Show) => Ok(()),
            ("route", Verb::Add | Verb::Replace) => self.route(rest, gathering),
            ("route", Verb::Delete) => self.delete_route(rest, gathering),
            ("rule", Verb::Add | Verb::Replace) => self.rule(rest, gathering),
            ("rule", Verb::Delete) => self.delete_rule(rest, gathering),
            ("nexthop", Verb::Add | Verb::Replace) => self.nexthop(rest, verb == Verb::Replace, gathering),
            ("nexthop", Verb::Delete) => {
                let id = rest.get(1).and_then(|word| values::number::<u32>(word.text));
                gathering.routing.nexthops.retain(|known| Some(known.id) != id);
                Ok(())
            }
            ("address", Verb::Add | Verb::Replace) => self.address(rest, gathering),
            ("link", Verb::Set) => self.link(rest, gathering),
            (object, _) => Err(Misread(format!("\"ip {object} {}\" is not followed", word.text))),
        }
    }

    fn context<'c>(&'c self, gathering: &'c Gathering) -> Context<'c> {
        Context { file: self.file, names: &gathering.names, ipv6: self.ipv6, device: None }
    }

    fn route(&self, words: &[Word<'_>], gathering: &mut Gathering) -> Result<(), Misread> {
        match words::route(words, self.context(gathering))? {
            Some(meant) => {
                self.left_out(&meant.left_out, gathering);
                gathering.route(meant.value);
            }
            None => self.address_by_route(words, gathering),
        }
        Ok(())
    }

    /// The kernel's route to the network of an address names the address:
    /// `10.0.0.0/24 dev ib0 proto kernel scope link src 10.0.0.1`.
    fn address_by_route(&self, words: &[Word<'_>], gathering: &mut Gathering) {
        let network = words.first().and_then(|word| Some((values::prefix(word.text)?, word.line)));
        let source = value_of(words, "src").and_then(values::address);
        if let (Some((network, line)), Some(address), Some(device)) =
            (network, source, value_of(words, "dev"))
            && network.contains(address)
        {
            let prefix = Prefix { address, length: network.length };
            gathering.address(device, prefix, place(self.file, line));
        }
    }

    fn rule(&self, words: &[Word<'_>], gathering: &mut Gathering) -> Result<(), Misread> {
        if let Some(meant) = words::rule(words, self.context(gathering))? {
            self.left_out(&meant.left_out, gathering);
            gathering.rule(meant.value);
        }
        Ok(())
    }

    fn nexthop(&self, words: &[Word<'_>], replaces: bool, gathering: &mut Gathering) -> Result<(), Misread> {
        let meant = words::nexthop(words, self.context(gathering))?;
        self.left_out(&meant.left_out, gathering);
        gathering.nexthop(meant.value, replaces);
        Ok(())
    }

    fn left_out(&self, left_out: &[(u32, String)], gathering: &mut Gathering) {
        for (line, text) in left_out {
            gathering.unread(
                self.file,
                *line,
                text,
                "has no place in a routing plan; the rest of the line is read",
            );
        }
    }

    /// A script that deletes before it adds means what it adds.
    fn delete_route(&self, words: &[Word<'_>], gathering: &mut Gathering) -> Result<(), Misread> {
        // `ip route del 10.0.0.0/8` needs no gateway: any will do to read it.
        let named = words.iter().any(|word| matches!(word.text, "via" | "dev" | "nhid" | "nexthop"));
        let context = Context { device: (!named).then_some("any"), ..self.context(gathering) };
        let Ok(Some(meant)) = words::route(words, context) else { return Ok(()) };
        let gone = meant.value;
        gathering.routing.routes.retain(|known| {
            (known.destination, known.table) != (gone.destination, gone.table)
                || gone.metric != 0 && known.metric != gone.metric
                || named && !same_way(&known.action, &gone.action)
        });
        Ok(())
    }

    fn delete_rule(&self, words: &[Word<'_>], gathering: &mut Gathering) -> Result<(), Misread> {
        let has_action =
            words.iter().any(|word| matches!(word.text, "table" | "lookup" | "goto" | "blackhole"));
        let mut all = words.to_vec();
        if !has_action {
            all.extend(words.first().map(|first| Word { text: "nop", line: first.line }));
        }
        let Ok(Some(meant)) = words::rule(&all, self.context(gathering)) else { return Ok(()) };
        let gone = meant.value;
        gathering.routing.rules.retain(|known| {
            gone.priority.is_some() && known.priority != gone.priority
                || gone.selector != Default::default() && known.selector != gone.selector
                || has_action && known.action != gone.action
                || gone.priority.is_none() && !has_action && gone.selector == Default::default()
        });
        Ok(())
    }

    /// `ip address replace 10.0.0.1/24 dev ib0`.
    fn address(&self, words: &[Word<'_>], gathering: &mut Gathering) -> Result<(), Misread> {
        let device =
            value_of(words, "dev").ok_or_else(|| Misread("an address without \"dev\"".to_owned()))?;
        let word = words
            .iter()
            .find(|word| values::prefix(word.text).is_some())
            .ok_or_else(|| Misread("no address with prefix length".to_owned()))?;
        if let Some(prefix) = values::prefix(word.text) {
            gathering.address(device, prefix, place(self.file, word.line));
        }
        Ok(())
    }

    /// `ip link set dev ib0 mtu 65520 up`, in any order; transmit queues are read
    /// with the sysctls.
    fn link(&self, words: &[Word<'_>], gathering: &mut Gathering) -> Result<(), Misread> {
        let (mut device, mut mtu) = (value_of(words, "dev"), None);
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            match word.text {
                "up" => {}
                "dev" | "txqueuelen" | "txqlen" | "qlen" => {
                    rest.next();
                }
                "mtu" => {
                    let bytes: Option<u32> = rest.next().and_then(|word| values::number(word.text));
                    let bytes = bytes.ok_or_else(|| Misread("\"mtu\" needs a number of bytes".to_owned()))?;
                    mtu = Some((bytes, word.line));
                }
                name if device.is_none() => device = Some(name),
                other => return Err(Misread(format!("\"ip link set ... {other}\" is not followed"))),
            }
        }
        let device = device.ok_or_else(|| Misread("no interface is named".to_owned()))?;
        if let Some((bytes, line)) = mtu {
            gathering.mtu(device, bytes, place(self.file, line));
        }
        Ok(())
    }

    /// `echo connected > /sys/class/net/ib0/mode`, with or without the blank.
    fn echo(&self, words: &[Word<'_>], gathering: &mut Gathering) -> Result<(), Misread> {
        let text = joined(words);
        let path = words.last().map(|word| word.text.trim_start_matches('>')).unwrap_or_default();
        let interface = path
            .strip_prefix('/')
            .and_then(|path| path.strip_prefix("sys/class/net/"))
            .and_then(|rest| rest.strip_suffix("/mode"));
        let mode = words.first().and_then(|word| infiniband_mode(word.text));
        if let (Some(interface), Some(mode), Some(word)) = (interface, mode, words.first()) {
            let place = Some(place(self.file, word.line));
            gathering.interface(interface).infiniband_mode = Some(Located { value: mode, place });
        } else if !text.contains("proc/sys/") && text.contains('/') {
            return Err(Misread("what is written there is not followed".to_owned()));
        }
        Ok(())
    }

    /// `2: ib0: <BROADCAST,UP> mtu 2044 ... inet 10.0.0.1/24 ...`, a block of
    /// `ip address show` in one statement.
    fn printed_link(&self, words: &[Word<'_>], gathering: &mut Gathering) -> Result<(), Misread> {
        let Some(name) = words.first() else { return Ok(()) };
        let name = name.text.trim_end_matches(':');
        let name = name.split('@').next().unwrap_or(name).to_owned();
        if name == "lo" {
            return Ok(());
        }
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            match word.text {
                "mtu" => {
                    if let Some(bytes) = rest.next().and_then(|word| values::number(word.text)) {
                        gathering.mtu(&name, bytes, place(self.file, word.line));
                    }
                }
                "link/ether" | "link/infiniband" => {
                    let address = rest.next().map(|word| word.text.to_owned());
                    gathering.interface(&name).link_address = address;
                }
                "inet" | "inet6" => {
                    let prefix = rest.next().and_then(|word| values::prefix(word.text));
                    // Link-local addresses are the kernel's (RFC 4291, 2.5.6).
                    if let Some(prefix) = prefix.filter(|prefix| !is_link_local(*prefix)) {
                        gathering.address(&name, prefix, place(self.file, word.line));
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

fn same_way(one: &RouteAction, other: &RouteAction) -> bool {
    match (one, other) {
        (RouteAction::Gateways(one), RouteAction::Gateways(other)) => {
            one.iter().map(|hop| hop.via).eq(other.iter().map(|hop| hop.via))
        }
        (one, other) => one == other,
    }
}

fn value_of<'a>(words: &[Word<'a>], name: &str) -> Option<&'a str> {
    let at = words.iter().position(|word| word.text == name)?;
    words.get(at + 1).map(|word| word.text)
}

/// IPoIB modes as sysfs has them.
pub(crate) fn infiniband_mode(word: &str) -> Option<InfinibandMode> {
    match word.to_ascii_lowercase().as_str() {
        "connected" => Some(InfinibandMode::Connected),
        "datagram" => Some(InfinibandMode::Datagram),
        _ => None,
    }
}

fn is_route_start(word: &str) -> bool {
    let types = [
        "default",
        "unicast",
        "local",
        "broadcast",
        "multicast",
        "anycast",
        "blackhole",
        "unreachable",
        "prohibit",
        "throw",
        "to",
    ];
    types.contains(&word) || values::prefix(word).is_some() || words::kind_by_number(word).is_some()
}

/// Objects by the abbreviations that ip(8) takes.
fn object_name(word: &str) -> Option<&'static str> {
    let begins = |full: &str, least: usize| word.len() >= least && full.starts_with(word);
    match word {
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
fn verb(word: &str) -> Option<Verb> {
    let begins = |full: &str| !word.is_empty() && full.starts_with(word);
    match word {
        _ if begins("add") || begins("append") || begins("prepend") => Some(Verb::Add),
        _ if begins("replace") || begins("change") || word == "chg" => Some(Verb::Replace),
        _ if begins("delete") => Some(Verb::Delete),
        "set" => Some(Verb::Set),
        _ if begins("show") || begins("list") || begins("get") || word == "lst" => Some(Verb::Show),
        _ => None,
    }
}
