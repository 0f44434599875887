//! Batches of `ip`, marks of nftables, sysctls, and the unit that loads them.

use std::{collections::BTreeMap, fmt::Write};

use clearstream_schema::{
    fabric::InfinibandMode,
    routing::{ConnectionMark, HostRouting, Located, RuleEntry},
};

use super::{APPLY, Content, REMOVE, RenderedFile, UNIT, words};

/// Where they lie on a host.
const FOLDER: &str = "etc/clearstream/routes";

/// Whether there is anything to load.
pub(super) fn has_any(routing: &HostRouting) -> bool {
    !(routing.interfaces.is_empty()
        && routing.nexthops.is_empty()
        && routing.routes.is_empty()
        && routing.rules.is_empty()
        && routing.connection_marks.is_empty())
}

/// The batches, what loads them, and the unit for every start.
pub(super) fn files(routing: &HostRouting) -> Vec<RenderedFile> {
    if !has_any(routing) {
        return Vec::new();
    }
    let lists = [
        ("modes", modes(routing)),
        ("links.batch", links(routing)),
        ("routes.batch", words::nexthops_and_routes(&routing.nexthops, &routing.routes).collect()),
        ("rules4.batch", rules(&routing.rules, false)),
        ("rules6.batch", rules(&routing.rules, true)),
    ];
    let mut files: Vec<RenderedFile> = lists
        .into_iter()
        .filter(|(_, lines)| !lines.is_empty())
        .map(|(name, lines)| RenderedFile::text(format!("{FOLDER}/{name}"), lines.join("\n") + "\n"))
        .collect();
    if !routing.connection_marks.is_empty() {
        let text = marks(&routing.connection_marks);
        files.push(RenderedFile::text(format!("{FOLDER}/marks.nft"), text));
    }
    files.push(RenderedFile::program(format!("{FOLDER}/apply"), APPLY));
    files.push(RenderedFile::program(format!("{FOLDER}/remove"), REMOVE));
    files.push(RenderedFile::text("etc/systemd/system/clearstream-routes.service", UNIT.to_owned()));
    files.push(RenderedFile {
        path: "etc/systemd/system/multi-user.target.wants/clearstream-routes.service".to_owned(),
        content: Content::Link { target: "../clearstream-routes.service".to_owned() },
    });
    files
}

/// `ib0 connected`.
pub(super) fn modes(routing: &HostRouting) -> Vec<String> {
    let mode = |mode: InfinibandMode| match mode {
        InfinibandMode::Connected => "connected",
        InfinibandMode::Datagram => "datagram",
    };
    let interfaces = routing.interfaces.iter();
    interfaces
        .filter_map(|known| Some(format!("{} {}", known.name, mode(known.infiniband_mode.as_ref()?.value))))
        .collect()
}

/// MTUs and addresses.
pub(super) fn links(routing: &HostRouting) -> Vec<String> {
    let mut lines = Vec::new();
    for interface in &routing.interfaces {
        let name = &interface.name;
        if let Some(mtu) = &interface.mtu {
            lines.push(format!("link set dev {name} mtu {}", mtu.value));
        }
        if !interface.addresses.is_empty() {
            lines.push(format!("link set dev {name} up"));
        }
        for address in &interface.addresses {
            lines.push(format!("address replace {} dev {name}", address.value));
        }
    }
    lines
}

/// Rules of one family.
pub(super) fn rules(rules: &[RuleEntry], ipv6: bool) -> Vec<String> {
    let family = rules.iter().filter(|rule| rule.ipv6 == ipv6);
    family.map(|rule| format!("rule add {}", words::rule(rule))).collect()
}

/// Statements that mark new connections by the gateway.
pub(super) fn marks_lines(marks: &[ConnectionMark]) -> Vec<String> {
    let line = |mark: &ConnectionMark| {
        format!(
            "iifname \"{}\" ct state new ether saddr {} ct mark set {:#x} comment \"{}\"",
            mark.interface, mark.link_address, mark.mark, mark.gateway
        )
    };
    marks.iter().map(line).collect()
}

/// The marks, as a set of nftables. Those of others stay out of it.
pub(super) fn mark_set(marks: &[ConnectionMark]) -> String {
    marks.iter().map(|mark| format!("{:#x}", mark.mark)).collect::<Vec<_>>().join(", ")
}

/// The recipe: new connections are marked where they arrive, and what leaves
/// takes the mark of its connection. The output chain is of type `route`, which
/// looks the route up again when the mark changes (nft(8), CHAINS).
fn marks(marks: &[ConnectionMark]) -> String {
    let mut text = "# Marks connections by the gateway that they came by; answers carry the mark.\n\
                    add table inet clearstream_route\n\
                    delete table inet clearstream_route\n\
                    table inet clearstream_route {\n\
                    \tchain arrive {\n\
                    \t\ttype filter hook prerouting priority mangle; policy accept;\n"
        .to_owned();
    for line in marks_lines(marks) {
        let _ = writeln!(text, "\t\t{line}");
    }
    let _ = write!(
        text,
        "\t}}\n\tchain leave {{\n\
         \t\ttype route hook output priority mangle; policy accept;\n\
         \t\tct mark {{ {} }} meta mark set ct mark\n\t}}\n}}\n",
        mark_set(marks)
    );
    text
}

/// `sysctl.d`, for systemd-sysctl at the start and for udev when an interface
/// appears.
pub(super) fn sysctls(sysctls: &BTreeMap<String, Located<String>>) -> Option<RenderedFile> {
    if sysctls.is_empty() {
        return None;
    }
    let mut text = String::new();
    for (key, located) in sysctls {
        let _ = writeln!(text, "{key} = {}", located.value);
    }
    Some(RenderedFile::text("etc/sysctl.d/90-clearstream-routes.conf", text))
}
