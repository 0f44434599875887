//! `ip -json`: each object becomes the line that `ip` prints for it, so that there is one reader of both.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::{Map, Value};

/// What `ip` prints of a rule (iproute2, iprule.c, `print_rule`): a key that is none of these may select packets in a way
/// that is not known here.
const RULE_KEYS: [&str; 34] = [
    "priority",
    "not",
    "src",
    "srclen",
    "dst",
    "dstlen",
    "fwmark",
    "fwmask",
    "iif",
    "iif_detached",
    "oif",
    "oif_detached",
    "tos",
    "ipproto",
    "sport",
    "sport_start",
    "sport_end",
    "dport",
    "dport_start",
    "dport_end",
    "tun_id",
    "uid_start",
    "uid_end",
    "suppress_prefixlen",
    "suppress_ifgroup",
    "table",
    "goto",
    "unresolved",
    "protocol",
    "l3mdev",
    "nop",
    "action",
    "flow_to",
    "flow_from",
];

/// An object of which the first value of a key counts: `ip` prints the destination of a tunnel (`encap`) as another
/// `dst` behind that of its route.
#[derive(Debug)]
struct Object(Map<String, Value>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Object, A::Error> {
                let mut object = Map::new();
                while let Some((key, value)) = entries.next_entry::<String, Value>()? {
                    object.entry(key).or_insert(value);
                }
                Ok(Object(object))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// Whether a text may be what `ip -json` prints.
pub(crate) fn is_json(text: &str) -> bool {
    let text = text.trim_start();
    text.starts_with('[')
        && ["\"dst\"", "\"ifname\"", "\"priority\"", "\"id\""].iter().any(|key| text.contains(key))
}

/// The lines that stand for the objects of all arrays in a text; none where it is no JSON.
pub(super) fn lines(text: &str) -> Option<Vec<String>> {
    let mut lines = Vec::new();
    for document in serde_json::Deserializer::from_str(text).into_iter::<Vec<Object>>() {
        lines.extend(document.ok()?.iter().flat_map(|Object(object)| line(object)));
    }
    Some(lines)
}

fn line(object: &Map<String, Value>) -> Option<String> {
    if object.contains_key("ifname") {
        return Some(link(object));
    }
    let mut line = Line::default();
    if object.contains_key("priority") && !object.contains_key("metric") && object.contains_key("src") {
        rule(object, &mut line);
    } else if object.contains_key("dst") {
        route(object, &mut line);
    } else if object.contains_key("id") {
        nexthop(object, &mut line);
    } else {
        return None;
    }
    Some(line.0)
}

/// Arguments that are put together.
#[derive(Default)]
struct Line(String);

impl Line {
    fn word(&mut self, text: &str) {
        if !self.0.is_empty() {
            self.0.push(' ');
        }
        self.0.push_str(text);
    }

    /// `NAME VALUE`, where the object has the key.
    fn option(&mut self, name: &str, value: Option<&Value>) {
        let Some(value) = value.map(text) else { return };
        self.word(name);
        self.word(&value);
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn flags(object: &Map<String, Value>, line: &mut Line) {
    let flags = object.get("flags").and_then(Value::as_array);
    for flag in flags.into_iter().flatten().filter_map(Value::as_str) {
        if matches!(flag, "onlink" | "linkdown" | "dead") {
            line.word(flag);
        }
    }
}

fn hop(object: &Map<String, Value>, line: &mut Line) {
    line.option("encap", object.get("encap"));
    let via = object.get("via").and_then(|via| via.get("host"));
    line.option("via", object.get("gateway").or(via));
    line.option("dev", object.get("dev"));
}

fn route(object: &Map<String, Value>, line: &mut Line) {
    if let Some(kind) = object.get("type").and_then(Value::as_str).filter(|kind| *kind != "unicast") {
        line.word(kind);
    }
    line.word(&object.get("dst").map(text).unwrap_or_default());
    line.option("nhid", object.get("nhid"));
    hop(object, line);
    for (name, key) in [
        ("table", "table"),
        ("proto", "protocol"),
        ("metric", "metric"),
        ("src", "prefsrc"),
        ("from", "from"),
    ] {
        line.option(name, object.get(key));
    }
    // That of a tunnel is another one.
    line.option("tos", object.get("tos").filter(|_| !object.contains_key("encap")));
    flags(object, line);
    let metrics = object.get("metrics").and_then(Value::as_array).into_iter().flatten();
    for metrics in metrics.filter_map(Value::as_object) {
        line.option("mtu", metrics.get("mtu"));
    }
    let hops = object.get("nexthops").and_then(Value::as_array).into_iter().flatten();
    for next in hops.filter_map(Value::as_object) {
        line.word("nexthop");
        hop(next, line);
        line.option("weight", next.get("weight"));
        flags(next, line);
    }
}

fn rule(object: &Map<String, Value>, line: &mut Line) {
    line.word(&format!("{}:", object.get("priority").map(text).unwrap_or_default()));
    if object.contains_key("not") {
        line.word("not");
    }
    for (name, key, length) in [("from", "src", "srclen"), ("to", "dst", "dstlen")] {
        let Some(address) = object.get(key).map(text) else { continue };
        let length = object.get(length).map(|length| format!("/{}", text(length))).unwrap_or_default();
        line.word(name);
        line.word(&format!("{address}{length}"));
    }
    if let Some(mark) = object.get("fwmark").map(text) {
        let mask = object.get("fwmask").map(|mask| format!("/{}", text(mask))).unwrap_or_default();
        line.word("fwmark");
        line.word(&format!("{mark}{mask}"));
    }
    for (name, key) in [
        ("iif", "iif"),
        ("oif", "oif"),
        ("tos", "tos"),
        ("ipproto", "ipproto"),
        ("tun_id", "tun_id"),
        ("suppress_prefixlength", "suppress_prefixlen"),
        ("suppress_ifgroup", "suppress_ifgroup"),
        ("table", "table"),
        ("goto", "goto"),
        ("realms", "flow_to"),
        ("protocol", "protocol"),
    ] {
        line.option(name, object.get(key));
    }
    for (name, key) in [("sport", "sport"), ("dport", "dport"), ("uidrange", "uid")] {
        line.option(name, object.get(key));
        let end = |end: &str| object.get(&format!("{key}_{end}")).map(text);
        if let (Some(first), Some(last)) = (end("start"), end("end")) {
            line.word(&format!("{name} {first}-{last}"));
        }
    }
    for name in ["l3mdev", "nop"].into_iter().filter(|name| object.contains_key(*name)) {
        line.word(name);
    }
    if let Some(action) = object.get("action").and_then(Value::as_str).filter(|action| *action != "to_tbl") {
        line.word(action);
    }
    // As arguments that there are not, so that the rule is named.
    for key in object.keys().filter(|key| !RULE_KEYS.contains(&key.as_str())) {
        line.word(key);
    }
}

fn nexthop(object: &Map<String, Value>, line: &mut Line) {
    line.option("id", object.get("id"));
    hop(object, line);
    let members = object.get("group").and_then(Value::as_array);
    if let Some(members) = members {
        let member = |member: &Value| {
            let weight = member.get("weight").map(|weight| format!(",{}", text(weight))).unwrap_or_default();
            format!("{}{weight}", member.get("id").map(text).unwrap_or_default())
        };
        line.word("group");
        line.word(&members.iter().map(member).collect::<Vec<_>>().join("/"));
    }
    line.option("type", object.get("type"));
    if let Some(timers) = object.get("resilient_args").and_then(Value::as_object) {
        for name in ["buckets", "idle_timer", "unbalanced_timer"] {
            line.option(name, timers.get(name));
        }
    }
    if object.contains_key("blackhole") {
        line.word("blackhole");
    }
}

/// A block of `ip address show`.
fn link(object: &Map<String, Value>) -> String {
    let mut line = Line::default();
    line.word(&format!("1: {}: <>", object.get("ifname").map(text).unwrap_or_default()));
    line.option("mtu", object.get("mtu"));
    if let (Some(kind), Some(address)) = (object.get("link_type"), object.get("address")) {
        line.word(&format!("link/{} {}", text(kind), text(address)));
    }
    let addresses = object.get("addr_info").and_then(Value::as_array).into_iter().flatten();
    for address in addresses.filter_map(Value::as_object) {
        let part = |key: &str| address.get(key).map(text).unwrap_or_default();
        line.word(&format!("{} {}/{}", part("family"), part("local"), part("prefixlen")));
    }
    line.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What iproute2 6.1 prints with and without `-json` for the same rules and routes.
    #[test]
    fn objects_become_what_ip_prints_without_json() {
        for (json, printed) in [
            (
                r#"{"priority":1,"src":"10.0.0.1","sport_start":1000,"sport_end":2000,"table":"100"}"#,
                "1: from 10.0.0.1 table 100 sport 1000-2000",
            ),
            (
                r#"{"priority":2,"src":"10.0.0.1","uid_start":1000,"uid_end":2000,"table":"100"}"#,
                "2: from 10.0.0.1 table 100 uidrange 1000-2000",
            ),
            (r#"{"priority":3,"src":"10.0.0.1","nop":null}"#, "3: from 10.0.0.1 nop"),
            (
                r#"{"priority":4,"src":"10.0.0.1","table":"9","flow_to":"3"}"#,
                "4: from 10.0.0.1 table 9 realms 3",
            ),
            (
                r#"{"priority":5,"src":"10.0.0.1","table":"102","suppress_ifgroup":"3"}"#,
                "5: from 10.0.0.1 suppress_ifgroup 3 table 102",
            ),
            (r#"{"priority":6,"src":"10.0.0.1","dscp":"8","table":"9"}"#, "6: from 10.0.0.1 table 9 dscp"),
            (
                r#"{"dst":"10.1.0.0/24","tos":"0x10","gateway":"10.0.0.2","dev":"d0","flags":[]}"#,
                "10.1.0.0/24 via 10.0.0.2 dev d0 tos 0x10",
            ),
            (
                r#"{"dst":"10.1.0.0/24","encap":"ip","id":3,"src":"0.0.0.0","dst":"10.0.0.9","ttl":0,"tos":0,"gateway":"10.0.0.2","dev":"d0","table":"7","flags":[]}"#,
                "10.1.0.0/24 encap ip via 10.0.0.2 dev d0 table 7",
            ),
        ] {
            assert_eq!(lines(&format!("[{json}]")), Some(vec![printed.to_owned()]), "{json}");
        }
    }
}
