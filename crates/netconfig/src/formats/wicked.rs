//! Routes and rules of SUSE's wicked beside its `ifcfg-` files: `ifroute-NAME`, `ifrule-NAME` and `routes`
//! (ifroute(5), ifrule(5)).

use clearstream_schema::routing::files::Loader;

use crate::{
    backend::Backend,
    read::{
        Source,
        detect::{FileName, Reader, Turn, last_part},
        gathering::{Gathering, place},
        ip_arguments::{self, Context, ParseError, Token},
        statements::{command_lines, joined},
        values,
    },
};

#[derive(Debug)]
pub(crate) struct Wicked;

impl Backend for Wicked {
    fn name(&self) -> &'static str {
        "wicked"
    }

    fn named(&self, name: &FileName<'_>) -> Option<Reader> {
        let begins = |prefix: &str| name.name.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty());
        let read = match name.name {
            _ if begins("ifroute-") => read_routes,
            _ if begins("ifrule-") => read_rules,
            "routes" if name.folder == "network" => read_routes,
            _ => return None,
        };
        Some(Reader { turn: Turn::Interfaces, read })
    }

    fn holding(&self, name: &FileName<'_>, text: &str) -> Option<Reader> {
        let is_columns = |line: &str| {
            matches!(line.split_whitespace().collect::<Vec<_>>()[..], [_, via, mask, ..]
            if (via == "-" || values::address(via).is_some()) && (mask == "-" || values::address(mask).is_some()))
        };
        let is_it = name.name == "routes" && text.lines().any(is_columns);
        is_it.then_some(Reader { turn: Turn::Interfaces, read: read_routes })
    }
}

/// The interface of a file, by its name.
fn device(source: &Source, gathering: &Gathering) -> Option<String> {
    let (_, name) = last_part(&source.path).split_once('-')?;
    Some(gathering.script_devices.get(name).cloned().unwrap_or_else(|| name.to_owned()))
}

/// Columns: destination, gateway, netmask, interface, and arguments of `ip route`; a dash leaves one out.
fn read_routes(source: &Source, gathering: &mut Gathering) {
    gathering.loader = Loader::NetworkScripts;
    let device = device(source, gathering);
    for tokens in command_lines(&source.text) {
        let line = tokens.first().map_or(1, |token| token.line);
        let arguments = arguments(&tokens);
        let tokens_of_ip: Vec<Token<'_>> = ip_arguments::split(&arguments, line);
        let context = Context { device: device.as_deref(), ..Context::of(&source.path, gathering) };
        match ip_arguments::route(&tokens_of_ip, context) {
            Ok(Some(parsed)) => parsed.gather(&source.path, false, gathering),
            Ok(None) => gathering.understood(),
            Err(ParseError(reason)) => {
                gathering.unread(&source.path, line, &joined(&tokens), &reason);
                let destination = tokens.first().and_then(|token| values::prefix(token.text));
                gathering.unknown_route(None, destination, &reason);
            }
        }
    }
}

/// The arguments of `ip route add` that stand for a line.
fn arguments(tokens: &[Token<'_>]) -> String {
    let column = |at: usize| tokens.get(at).map(|token| token.text).filter(|text| *text != "-");
    let mut arguments = column(0).unwrap_or("-").to_owned();
    // The netmask is that of older files; a default route has none.
    if let Some(mask) = column(2).filter(|_| !arguments.contains('/') && arguments != "default") {
        arguments = format!("{arguments}/{mask}");
    }
    if let Some(gateway) = column(1).filter(|gateway| !matches!(*gateway, "0.0.0.0" | "::")) {
        arguments = format!("{arguments} via {gateway}");
    }
    if let Some(interface) = column(3) {
        arguments = format!("{arguments} dev {interface}");
    }
    for option in tokens.iter().skip(4).filter(|option| option.text != "type" && option.text != "-") {
        arguments = format!("{arguments} {}", option.text);
    }
    arguments
}

/// Arguments of `ip rule add`, behind the family.
fn read_rules(source: &Source, gathering: &mut Gathering) {
    gathering.loader = Loader::NetworkScripts;
    for tokens in command_lines(&source.text) {
        let (ipv6, rest) = match tokens.split_first() {
            Some((first, rest)) if matches!(first.text, "ipv4" | "ipv6") => {
                (Some(first.text == "ipv6"), rest)
            }
            _ => (None, &tokens[..]),
        };
        let context = Context { ipv6, ..Context::of(&source.path, gathering) };
        match ip_arguments::rule(rest, context) {
            Ok(Some(parsed)) => {
                gathering.left_out(&source.path, &parsed.left_out);
                gathering.rule(parsed.value);
            }
            Ok(None) => gathering.understood(),
            Err(ParseError(reason)) => {
                let line = tokens.first().map_or(1, |token| token.line);
                gathering.unread(&source.path, line, &joined(&tokens), reason);
                ip_arguments::open_rule(rest, ipv6, place(&source.path, line), gathering);
            }
        }
    }
}
