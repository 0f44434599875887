//! Batches of `ip`, connection marks of nftables, sysctls, and the unit that loads them.

use std::{collections::BTreeMap, fmt::Write};

use clearstream_routing::marks;
use clearstream_schema::{
    fabric::InfinibandMode,
    routing::{ConnectionMark, HostRouting, Located, RuleEntry},
};

use super::{APPLY, Content, REMOVE, RenderedFile, UNIT, ip_arguments};

/// Folder of the batches on a host.
const FOLDER: &str = "etc/clearstream/routes";

/// Whether there is anything to load.
pub(crate) fn has_any(routing: &HostRouting) -> bool {
    !(routing.interfaces.is_empty()
        && routing.nexthops.is_empty()
        && routing.routes.is_empty()
        && routing.rules.is_empty()
        && routing.connection_marks.is_empty())
}

/// The batches, what loads them, and the unit for every start.
pub(crate) fn files(routing: &HostRouting) -> Vec<RenderedFile> {
    if !has_any(routing) {
        return Vec::new();
    }
    let lists = [
        ("modes", modes(routing)),
        ("links.batch", links(routing)),
        ("routes.batch", ip_arguments::nexthops_and_routes(&routing.nexthops, &routing.routes).collect()),
        ("rules4.batch", rules(&routing.rules, false)),
        ("rules6.batch", rules(&routing.rules, true)),
    ];
    let mut files: Vec<RenderedFile> = lists
        .into_iter()
        .filter(|(_, lines)| !lines.is_empty())
        .map(|(name, lines)| RenderedFile::text(format!("{FOLDER}/{name}"), lines.join("\n") + "\n"))
        .collect();
    if !routing.connection_marks.is_empty() {
        let text = mark_table(&routing.connection_marks);
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
pub(crate) fn modes(routing: &HostRouting) -> Vec<String> {
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
pub(crate) fn links(routing: &HostRouting) -> Vec<String> {
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
pub(crate) fn rules(rules: &[RuleEntry], ipv6: bool) -> Vec<String> {
    let family = rules.iter().filter(|rule| rule.ipv6 == ipv6);
    family.map(|rule| format!("rule add {}", ip_arguments::rule(rule))).collect()
}

/// The whole table; it replaces the one before.
fn mark_table(marks: &[ConnectionMark]) -> String {
    format!(
        "# Marks connections by the gateway that they came by; replies carry the mark.\n\
         add table inet clearstream_route\n\
         delete table inet clearstream_route\n\
         table inet clearstream_route {{\n{}}}\n",
        marks::chains(marks)
    )
}

/// `sysctl.d`, for systemd-sysctl at the start and for udev when an interface
/// appears.
pub(crate) fn sysctls(sysctls: &BTreeMap<String, Located<String>>) -> Option<RenderedFile> {
    if sysctls.is_empty() {
        return None;
    }
    let mut text = String::new();
    for (key, located) in sysctls {
        let _ = writeln!(text, "{key} = {}", located.value);
    }
    Some(RenderedFile::text("etc/sysctl.d/90-clearstream-routes.conf", text))
}
