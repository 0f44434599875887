//! `route add` of net-tools (route(8)), which still stands in many files.

use clearstream_schema::{
    prefix::Prefix,
    routing::{Hop, MAIN_TABLE, RouteAction, RouteEntry},
};

use crate::read::{
    gathering::{Gathering, place},
    ip_arguments::{ParseError, Token},
    values,
};

/// Whether the arguments behind `route` are those of net-tools, and not of a batch of `ip`.
pub(super) fn is_call(arguments: &[Token<'_>]) -> bool {
    arguments.iter().any(|token| matches!(token.text, "gw" | "netmask" | "-net" | "-host" | "-A" | "--inet6"))
}

/// Reads `add [-net|-host] TARGET [netmask M] [gw G] [metric N] [dev IF]`, and `del` alike.
pub(super) fn read(file: &str, tokens: &[Token<'_>], gathering: &mut Gathering) -> Result<(), ParseError> {
    let line = tokens.first().map_or(1, |token| token.line);
    let mut verb = "";
    let mut target = Target::default();
    let (mut via, mut device, mut metric, mut is_reject) = (None, None, 0, false);
    let mut rest = tokens.iter().map(|token| token.text);
    let fail = |text: &str| ParseError(format!("\"{text}\" is no argument of route(8)"));
    while let Some(token) = rest.next() {
        let mut value =
            || rest.next().ok_or_else(|| ParseError(format!("a value is missing behind \"{token}\"")));
        match token {
            "add" | "del" | "delete" => verb = token,
            "-A" => target.is_ipv6 |= value()? == "inet6",
            "-6" | "--inet6" => target.is_ipv6 = true,
            "-4" | "-n" | "-v" | "-net" | "--inet" => {}
            "-host" => target.is_host = true,
            "netmask" => target.mask = Some(value()?),
            "gw" => via = Some(values::address(value()?).ok_or_else(|| fail("gw"))?),
            "metric" => metric = values::number(value()?).ok_or_else(|| fail("metric"))?,
            "dev" => device = Some(value()?.to_owned()),
            "mss" | "window" | "irtt" => {
                value()?;
            }
            "reject" => is_reject = true,
            text if target.text.is_none() => target.text = Some(text),
            // `route add default eth0`.
            text if device.is_none() && values::prefix(text).is_none() => device = Some(text.to_owned()),
            text => return Err(fail(text)),
        }
    }
    let destination = target.prefix(via.is_some_and(|via| via.is_ipv6()))?;
    gathering.understood();
    let action = match (via, device.clone()) {
        _ if is_reject => RouteAction::Unreachable,
        (Some(via), interface) => RouteAction::Gateways(vec![Hop { via, interface, weight: 1, place: None }]),
        (None, Some(interface)) => RouteAction::Link { interface },
        (None, None) if verb == "add" => {
            return Err(ParseError("a route without gateway and interface".to_owned()));
        }
        (None, None) => RouteAction::Unreachable,
    };
    if verb == "add" {
        let place = Some(place(file, line));
        gathering.route(RouteEntry {
            destination,
            table: MAIN_TABLE,
            metric,
            action,
            source: None,
            mtu: None,
            protocol: 0,
            place,
        });
    } else {
        gathering
            .routing
            .routes
            .retain(|known| (known.destination, known.table) != (destination, MAIN_TABLE));
    }
    Ok(())
}

#[derive(Default)]
struct Target<'a> {
    text: Option<&'a str>,
    mask: Option<&'a str>,
    is_host: bool,
    is_ipv6: bool,
}

impl Target<'_> {
    fn prefix(&self, by_gateway: bool) -> Result<Prefix, ParseError> {
        let text = self.text.ok_or_else(|| ParseError("a route without destination".to_owned()))?;
        if matches!(text, "default" | "any") {
            return Ok(values::everything(self.is_ipv6 || by_gateway));
        }
        let prefix = match self.mask {
            Some(mask) if !self.is_host => values::prefix(&format!("{text}/{mask}")),
            _ => values::prefix(text),
        };
        prefix.ok_or_else(|| ParseError(format!("\"{text}\" is no destination")))
    }
}
