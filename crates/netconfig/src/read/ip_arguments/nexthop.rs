//! `ip nexthop add ...` and the lines of `ip nexthop show` (ip-nexthop(8)).

use clearstream_schema::routing::{GroupMember, Nexthop, NexthopTarget, Resilient};

use super::{Context, Cursor, ParseError, Parsed, Token, unfit};
use crate::read::values;

/// The kernel's default of a resilient group's idle timer, seconds
/// (Documentation/networking/nexthop-group-resilient.rst).
const IDLE_SECONDS: u32 = 120;

/// Reads the arguments of `ip nexthop add`, or a line of `ip nexthop show`.
/// `Err` with the id in place of an object that has no gateway, which is not held here.
pub(crate) fn nexthop(
    tokens: &[Token<'_>],
    context: Context<'_>,
) -> Result<Result<Parsed<Nexthop>, u32>, ParseError> {
    let mut cursor = Cursor::new(tokens);
    let (mut id, mut via, mut interface, mut members, mut protocol) = (None, None, None, None, 0);
    let (mut is_blackhole, mut is_resilient) = (false, false);
    let mut resilient = Resilient { bucket_count: 0, idle_seconds: IDLE_SECONDS, unbalanced_seconds: 0 };
    let mut left_out = Vec::new();
    while let Some(token) = cursor.next() {
        let name = token.text;
        match name {
            "id" => id = Some(cursor.read(name, "nexthop id", values::number)?),
            "via" => via = Some(cursor.gateway()?),
            "dev" => interface = Some(cursor.value(name)?.text.to_owned()),
            "group" => members = Some(cursor.read(name, "list of nexthops such as 1,2/3,1", group)?),
            "type" => {
                let kind = cursor.value(name)?.text;
                is_resilient = match kind {
                    "resilient" => true,
                    "mpath" => false,
                    other => return Err(ParseError(unfit(name, other, "type of a nexthop group"))),
                };
            }
            "buckets" => resilient.bucket_count = cursor.read(name, "number of buckets", values::number)?,
            "idle_timer" => resilient.idle_seconds = cursor.read(name, "time in seconds", values::number)?,
            "unbalanced_timer" => {
                resilient.unbalanced_seconds = cursor.read(name, "time in seconds", values::number)?;
            }
            "unbalanced_time" | "scope" => {
                cursor.value(name)?;
            }
            "proto" | "protocol" => protocol = cursor.protocol(name, context)?,
            "blackhole" => is_blackhole = true,
            "onlink" | "linkdown" | "dead" | "offload" | "trap" => {}
            "fdb" | "encap" => left_out.push((token.line, name.to_owned())),
            other => return Err(ParseError(unfit("", other, "argument of a nexthop"))),
        }
    }
    let id = id.ok_or_else(|| ParseError("a nexthop without id".to_owned()))?;
    let target = match (members, via, interface) {
        _ if is_blackhole => NexthopTarget::Blackhole,
        (Some(members), ..) => NexthopTarget::Group { members, resilient: is_resilient.then_some(resilient) },
        (None, Some(via), Some(interface)) => NexthopTarget::Gateway { via, interface },
        (None, None, Some(_)) => return Ok(Err(id)),
        _ => return Err(ParseError("a nexthop needs a gateway and its interface, or a group".to_owned())),
    };
    let place = tokens.first().map(|token| context.place(token.line));
    Ok(Ok(Parsed { value: Nexthop { id, target, protocol, place }, left_out }))
}

/// `1,2/3,1`: ids with weights, which default to 1.
fn group(token: &str) -> Option<Vec<GroupMember>> {
    token
        .split('/')
        .map(|member| {
            let (id, weight) = member.split_once(',').unwrap_or((member, "1"));
            Some(GroupMember { id: values::number(id)?, weight: values::number(weight)? })
        })
        .collect()
}
