//! `ip -json`: each object becomes the line that `ip` prints for it, so that there is one reader of both.

use serde_json::{Map, Value};

/// Whether a text may be what `ip -json` prints.
pub(crate) fn is_json(text: &str) -> bool {
    let text = text.trim_start();
    text.starts_with('[')
        && ["\"dst\"", "\"ifname\"", "\"priority\"", "\"id\""].iter().any(|key| text.contains(key))
}

/// The lines that stand for the objects of all arrays in a text; none where it is no JSON.
pub(super) fn lines(text: &str) -> Option<Vec<String>> {
    let mut lines = Vec::new();
    for document in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        let Value::Array(items) = document.ok()? else { return None };
        lines.extend(items.iter().filter_map(Value::as_object).flat_map(line));
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
    for name in [
        "iif",
        "oif",
        "tos",
        "ipproto",
        "sport",
        "dport",
        "suppress_prefixlen",
        "uid_start",
        "table",
        "goto",
        "protocol",
    ] {
        let printed = match name {
            "suppress_prefixlen" => "suppress_prefixlength",
            "uid_start" => "uidrange",
            same => same,
        };
        line.option(printed, object.get(name));
    }
    if object.contains_key("l3mdev") {
        line.word("l3mdev");
    }
    if let Some(action) = object.get("action").and_then(Value::as_str).filter(|action| *action != "to_tbl") {
        line.word(action);
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
