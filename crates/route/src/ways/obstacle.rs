//! What keeps a host from taking on packets that its routes have a way for: forwarding that is
//! off, and source validation.

use clearstream_routing::{
    lookup::{Found, Lookup, Packet, Verdict},
    node::{Node, Received},
};
use clearstream_schema::routing::HostRouting;

use super::{Cause, Plan};

/// What is in the way of a packet that arrives; `planned` is the plan's answer to the reverse
/// question, with the protocol number of its routes, where there is a plan.
pub fn obstacle(
    live: &HostRouting,
    packet: &Packet<'_>,
    found: &Found<'_>,
    planned: Option<(&Lookup<'_>, u8)>,
) -> Option<Cause> {
    let input = packet.input?;
    let ipv6 = packet.destination.is_ipv6();
    let node = Node::new(live);
    let is_carried = matches!(found.verdict, Verdict::Link(_) | Verdict::Gateways(..));
    if is_carried && node.forwards(Some(input), ipv6) == Some(false) {
        return Some(forwarding_off(live, input, ipv6));
    }
    let output = match found.verdict {
        Verdict::Link(output) => Some(output),
        _ => None,
    };
    let (source, destination) = (packet.source?, Some(packet.destination));
    if node.accepts(&Received { source, destination, mark: packet.mark, input, output }) {
        return None;
    }
    let back = Packet { source: destination, destination: source, mark: 0, input: output };
    let model = Lookup::new(live);
    let way_back = model.find(&back);
    let of_plan = planned.map(|(lookup, protocol)| (lookup.find(&back), protocol));
    // Nothing to compare with: what decides is named, and not why.
    let plan = match &of_plan {
        Some((found, protocol)) => Plan { found, protocol: *protocol },
        None => Plan { found: &way_back, protocol: u8::MAX },
    };
    let cause = Cause::of(&way_back, plan)?;
    let shown = if of_plan.is_some() { cause.description() } else { cause.what.clone() };
    let what = format!(
        "the reverse path filter of {input} drops them, as the route back to {source} does not leave by {input}: {shown}"
    );
    Some(Cause { what, owner: String::new(), why: String::new(), ..cause })
}

fn forwarding_off(live: &HostRouting, input: &str, ipv6: bool) -> Cause {
    let of_interface = format!("net.ipv4.conf.{}.forwarding", input.replace('.', "/"));
    let is_off = |key: &str| live.sysctls.get(key).is_some_and(|value| value.value.trim() == "0");
    let key = match ipv6 {
        true => "net.ipv6.conf.all.forwarding".to_owned(),
        false if is_off("net.ipv4.ip_forward") => "net.ipv4.ip_forward".to_owned(),
        false => of_interface,
    };
    Cause {
        what: format!("forwarding is off: {key} is 0"),
        owner: String::new(),
        why: String::new(),
        advice: format!(
            "`sysctl -w {key}=1`, and correct who sets it to 0 (`clearstream route apply` sets forwarding of all)"
        ),
        is_rule: false,
        destination: None,
    }
}
