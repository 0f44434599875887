//! Scripts that call `ip`, batches for `ip -batch`, and the output of `ip`. The first
//! tokens of a line decide its kind, so that one file may hold several kinds: notes
//! of an administrator often do.

mod expand;
pub(crate) mod json;
mod marks;
pub(crate) mod net_tables;
mod net_tools;
mod objects;
mod pieces;
pub(crate) mod printed;
mod shell;

use std::collections::BTreeSet;

use clearstream_schema::{
    fabric::InfinibandMode,
    routing::{Located, files::Loader},
};
use clearstream_tune::syntax;

use self::printed::Shown;
use super::{
    Source,
    detect::last_part,
    gathering::{Gathering, place},
    ip_arguments::{self, Context, ParseError, Token},
    statements::{Style, divide, is_ip, joined, statements, style_of},
    values,
};

/// Programs and functions that are named in a message.
const MOST_NAMED: usize = 6;

/// Why a command is passed over that says where it runs.
const OTHER_NAMESPACE: &str = "is for another network namespace, which is not read";

/// Why the rest of a script is not expanded.
const TOO_MUCH: &str = "its loops and functions become too many commands: what follows in them is not read; give what \
                        \"ip route show table all\" and \"ip rule\" print on its host";

/// Reads a script, a batch or printed text. `ipv6` is the family of arguments that
/// imply none.
pub(crate) fn read(source: &Source, ipv6: Option<bool>, gathering: &mut Gathering) {
    if json::is_json(&source.text)
        && let Some(lines) = json::lines(&source.text)
    {
        gathering.understood();
        for text in lines {
            let tokens = ip_arguments::split(&text, 1);
            State::new(&source.path, ipv6, Style::Printed).each(&[tokens], gathering);
        }
        return;
    }
    let style = style_of(&source.text);
    let mut state = State::new(&source.path, ipv6, style);
    let rest = net_tables::read(source, gathering);
    let text = rest.as_deref().unwrap_or(&source.text);
    if style == Style::Commands && text.contains(['$', ';', '<', '(']) {
        let expanded = expand::expanded(text);
        let lines = || expanded.commands.iter().map(|(line, text)| (*line, text.as_str()));
        sysctls(&source.path, lines(), gathering);
        state.each(&statements(lines(), style), gathering);
        if let Some(line) = expanded.ends_at {
            gathering.unread(&source.path, line, last_part(&source.path), TOO_MUCH);
        }
    } else {
        let lines = || (1..).zip(text.lines());
        if style == Style::Commands {
            sysctls(&source.path, lines(), gathering);
        }
        state.each(&statements(lines(), style), gathering);
    }
    state.report_programs(gathering);
}

/// Reads one command that stands in a file of another kind.
pub(crate) fn line(file: &str, line: u32, text: &str, gathering: &mut Gathering) {
    let mut state = State::new(file, None, Style::Commands);
    let expanded = expand::expanded(text);
    sysctls(file, expanded.commands.iter().map(|(_, text)| (line, text.as_str())), gathering);
    for (_, text) in &expanded.commands {
        let tokens = ip_arguments::split(text, line);
        state.each(&divide(&tokens, Style::Commands), gathering);
    }
    if expanded.ends_at.is_some() {
        gathering.unread(file, line, text, TOO_MUCH);
    }
    state.report_programs(gathering);
}

/// `sysctl -w` and `echo ... > /proc/sys/...`, as the linter of sysctls reads them.
fn sysctls<'t>(file: &str, lines: impl Iterator<Item = (u32, &'t str)>, gathering: &mut Gathering) {
    for (line, text) in lines.filter(|(_, text)| text.contains("sysctl") || text.contains("proc/sys/")) {
        let parsed = syntax::parse(&format!("#!/bin/sh\n{text}"));
        for statement in parsed.statements {
            gathering.sysctl(&statement.key, &statement.value, place(file, line));
        }
        for slip in parsed.slips {
            gathering.unread(file, line, &slip.text, slip.reason);
        }
    }
}

struct State<'a> {
    file: &'a str,
    ipv6: Option<bool>,
    style: Style,
    shown: Shown,
    /// Programs and functions whose effect is not known, and the line of the first.
    programs: BTreeSet<String>,
    first_program: u32,
    program_count: usize,
    /// Conditions, loops and functions that are open.
    depth: i32,
}

impl<'a> State<'a> {
    fn new(file: &'a str, ipv6: Option<bool>, style: Style) -> Self {
        Self {
            file,
            ipv6,
            style,
            shown: Shown::default(),
            programs: BTreeSet::new(),
            first_program: 0,
            program_count: 0,
            depth: 0,
        }
    }

    fn each(&mut self, statements: &[Vec<Token<'_>>], gathering: &mut Gathering) {
        for statement in statements {
            let words = statement.iter().map(|token| token.text);
            self.depth += if self.style == Style::Commands { shell::depth_change(words) } else { 0 };
            gathering.loader = if self.depth > 0 { Loader::Conditional } else { Loader::Command };
            if let Err(ParseError(reason)) = self.statement(statement, gathering) {
                let line = statement.first().map_or(1, |token| token.line);
                gathering.unread(self.file, line, &joined(statement), reason);
            }
        }
        gathering.loader = Loader::Command;
    }

    fn report_programs(&self, gathering: &mut Gathering) {
        if self.programs.is_empty() {
            return;
        }
        let named: Vec<&str> = self.programs.iter().map(String::as_str).take(MOST_NAMED).collect();
        let more = if self.programs.len() > MOST_NAMED { ", ..." } else { "" };
        let lines = if self.program_count == 1 {
            "1 line".to_owned()
        } else {
            format!("{} lines", self.program_count)
        };
        let reason = format!("other programs and functions, in {lines}: what they set is not known");
        gathering.unread(self.file, self.first_program, &format!("{}{more}", named.join(", ")), reason);
    }

    fn statement(&mut self, statement: &[Token<'_>], gathering: &mut Gathering) -> Result<(), ParseError> {
        let mut rest = statement;
        while let [first, others @ ..] = rest {
            rest = match others {
                // `sh -c "ip route add ..."`; quotes are gone.
                [option, inner @ ..] if option.text == "-c" && is_shell(first.text) => inner,
                [] if first.text == "(" => break,
                _ if shell::is_prefix(first.text) => others,
                _ => break,
            };
        }
        let [first, others @ ..] = rest else { return Ok(()) };
        match first.text {
            token if is_ip(token) => self.command(others, gathering),
            "route" | "/sbin/route" | "/usr/sbin/route" if net_tools::is_call(others) => {
                net_tools::read(self.file, others, gathering)
            }
            // The object of a batch line.
            "route" | "rule" | "nexthop" | "address" | "link" | "addr"
                if others.first().is_some_and(|token| verb(token.text).is_some()) =>
            {
                self.command(rest, gathering)
            }
            "id" if self.style == Style::Printed || others.len() > 2 => {
                gathering.loader = Loader::Kernel;
                self.nexthop(rest, false, gathering)
            }
            "echo" if self.style == Style::Commands => self.echo(others, gathering),
            token if marks::is_firewall(token) || last_part(token) == "wg" => {
                marks::read(others, gathering);
                Ok(())
            }
            token if token.ends_with(':') && token.trim_end_matches(':').parse::<u32>().is_ok() => {
                gathering.loader = Loader::Kernel;
                match others.first() {
                    Some(next) if next.text.ends_with(':') => self.printed_link(others, gathering),
                    // One line of `ip -oneline address`.
                    Some(_) if others.get(1).is_some_and(|token| matches!(token.text, "inet" | "inet6")) => {
                        self.printed_link(others, gathering);
                    }
                    _ => return self.rule(rest, gathering),
                }
                Ok(())
            }
            token if is_route_start(token) => {
                gathering.loader = Loader::Kernel;
                self.printed_route(rest, gathering)
            }
            token if self.style == Style::Commands => {
                self.program(token, first.line);
                Ok(())
            }
            token => Err(ParseError(format!("\"{token}\" begins nothing that sets routes"))),
        }
    }

    /// A program that is none of those that set routes as they are read here.
    fn program(&mut self, name: &str, line: u32) {
        if shell::is_without_routes(name) {
            return;
        }
        if self.programs.is_empty() {
            self.first_program = line;
        }
        self.program_count += 1;
        self.programs.insert(name.to_owned());
    }

    fn command(&mut self, tokens: &[Token<'_>], gathering: &mut Gathering) -> Result<(), ParseError> {
        let mut tokens = tokens;
        let outside = self.ipv6;
        while let [first, others @ ..] = tokens {
            match first.text {
                "-4" => self.ipv6 = Some(false),
                "-6" => self.ipv6 = Some(true),
                // `-family inet6`: the word after it goes too.
                "-family" | "-f" => {
                    self.ipv6 = others.first().map(|family| family.text == "inet6");
                    tokens = others.get(1..).unwrap_or_default();
                    continue;
                }
                "-force" | "-br" | "-brief" | "-details" | "-oneline" | "-json" | "-pretty"
                | "-statistics" | "-Numeric" | "-color" | "-c" => {}
                "-o" | "-d" | "-s" | "-N" | "-j" | "-p" => {}
                option @ ("-n" | "-net" | "-netns") => {
                    self.ipv6 = outside;
                    return Err(ParseError(format!("\"ip {option}\" {OTHER_NAMESPACE}")));
                }
                option if option.starts_with('-') => {
                    self.ipv6 = outside;
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
        let object = object_name(object.text).ok_or_else(|| match object.text {
            "netns" | "netn" => ParseError(format!("\"ip netns\" {OTHER_NAMESPACE}")),
            other => ParseError(format!("\"ip {other}\" is not read here")),
        })?;
        let Some((command, rest)) = rest.split_first() else {
            self.shows(object, &[], gathering);
            return Ok(());
        };
        let verb = verb(command.text)
            .ok_or_else(|| ParseError(format!("\"ip {object} {}\" is not read here", command.text)))?;
        gathering.understood();
        match (object, verb) {
            (_, Verb::Show) => self.shows(object, rest, gathering),
            (_, Verb::Lookup) => self.shown = Shown { is_lookup: true, ..Shown::default() },
            ("route", Verb::Add | Verb::Append | Verb::Replace) => self.add_route(rest, verb, gathering),
            // The other branch of a script may be the one that runs: `stop` deletes what `start` adds.
            (_, Verb::Delete | Verb::Flush) if self.depth > 0 => {}
            ("route", Verb::Delete) => self.delete_route(rest, gathering),
            ("rule", Verb::Add | Verb::Replace) => self.add_rule(rest, gathering),
            ("rule", Verb::Delete) => self.delete_rule(rest, gathering),
            ("nexthop", Verb::Add | Verb::Replace) => {
                return self.nexthop(rest, verb == Verb::Replace, gathering);
            }
            ("nexthop", Verb::Delete) => {
                let id = rest.get(1).and_then(|token| values::number::<u32>(token.text));
                gathering.routing.nexthops.retain(|known| Some(known.id) != id);
            }
            ("address", Verb::Add | Verb::Replace) => return self.address(rest, gathering),
            ("address", Verb::Delete) => self.delete_address(rest, gathering),
            ("link", Verb::Set) => return self.link(rest, gathering),
            ("link", Verb::Add) => Self::add_link(rest, gathering),
            ("link", Verb::Delete) => {}
            (object, Verb::Flush) => self.flush(object, rest, gathering),
            (object, _) => {
                return Err(ParseError(format!("\"ip {object} {}\" is not supported", command.text)));
            }
        }
        Ok(())
    }

    /// `ip route show table 7`: what follows is its answer.
    fn shows(&mut self, object: &str, arguments: &[Token<'_>], gathering: &mut Gathering) {
        self.shown = Shown { ipv6: self.ipv6, ..Shown::default() };
        if object != "route" {
            return;
        }
        let named = ["table", "tabl", "tab", "ta", "t"].iter().find_map(|name| value_of(arguments, name));
        let by_vrf = value_of(arguments, "vrf");
        let table = match (named, by_vrf) {
            (Some("all" | "0" | "unspec"), _) => {
                gathering.shows_all_tables = true;
                return;
            }
            (Some("cache"), _) | (None, None) => return,
            (Some(name), _) => gathering.names.table(name),
            (None, Some(vrf)) => gathering.vrfs.get(vrf).copied(),
        };
        self.shown.table = table;
        gathering.shown_tables.extend(table);
        self.shown.is_of_unknown_table = table.is_none();
    }

    fn context<'c>(&self, gathering: &'c Gathering) -> Context<'c>
    where
        'a: 'c,
    {
        Context { ipv6: self.ipv6, ..Context::of(self.file, gathering) }
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
        } else if let (true, Some(number), Some(name)) = (
            path.ends_with("rt_tables") || path.contains("rt_tables.d/"),
            tokens.first().and_then(|token| values::number::<u32>(token.text)),
            tokens.get(1).filter(|token| !token.text.starts_with('>')),
        ) {
            // `echo 200 backup >> /etc/iproute2/rt_tables`.
            gathering.understood();
            gathering.names.read_tables(&format!("{number} {}", name.text));
        } else if !["proc/sys/", ">/dev/", "> /dev/"].iter().any(|known| text.contains(known))
            && text.contains('/')
            && text.contains('>')
        {
            return Err(ParseError("what is written there is not supported".to_owned()));
        }
        Ok(())
    }
}

fn is_shell(program: &str) -> bool {
    matches!(last_part(program), "sh" | "bash" | "dash")
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
    Append,
    Replace,
    Delete,
    Set,
    Show,
    Lookup,
    Flush,
}

/// What to do, by the abbreviations that ip(8) takes.
fn verb(token: &str) -> Option<Verb> {
    let begins = |full: &str| !token.is_empty() && full.starts_with(token);
    match token {
        _ if begins("add") => Some(Verb::Add),
        _ if begins("append") || begins("prepend") => Some(Verb::Append),
        _ if begins("replace") || begins("change") || token == "chg" => Some(Verb::Replace),
        _ if begins("delete") => Some(Verb::Delete),
        "set" => Some(Verb::Set),
        _ if begins("flush") => Some(Verb::Flush),
        _ if begins("get") => Some(Verb::Lookup),
        // `ip route table 7` shows it, as `ip route show table 7` does.
        "table" | "vrf" | "dev" | "root" | "match" | "exact" => Some(Verb::Show),
        _ if begins("show") || begins("list") || token == "lst" => Some(Verb::Show),
        _ => None,
    }
}
