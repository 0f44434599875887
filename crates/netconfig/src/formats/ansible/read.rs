//! Ansible: variables that `routes` writes, the network role's
//! `network_state` and `network_connections`, tasks that call `ip` or set
//! sysctls. Everything else in plays is ignored.

use super::{connections, variables};
use crate::{
    formats::nmstate,
    read::{
        gathering::{Gathering, place},
        nftables, script,
        yaml::{Node, Yaml},
    },
};

/// Reads a document, at any depth.
pub(super) fn read(file: &str, value: &Yaml, gathering: &mut Gathering) {
    match &value.node {
        Node::Scalar(_) => {}
        Node::List(items) => items.iter().for_each(|item| read(file, item, gathering)),
        Node::Map(entries) => {
            for (key, value) in entries {
                entry(file, key, value, gathering);
            }
        }
    }
}

pub(super) fn entry(file: &str, key: &Yaml, value: &Yaml, gathering: &mut Gathering) {
    let name = key.text().unwrap_or_default();
    match name {
        "network_state" => {
            let loader = gathering.loader;
            nmstate::read::read(file, value, gathering);
            gathering.loader = loader;
        }
        "network_connections" => connections::read(file, value, gathering),
        variables::LINKS | variables::ROUTES | variables::RULES4 | variables::RULES6 => {
            lines(file, name == variables::RULES6, value, gathering);
        }
        variables::MODES => modes(file, value, gathering),
        variables::MARKS => {
            for item in value.items() {
                nftables::lines(file, item.line, item.text().unwrap_or_default(), gathering);
            }
        }
        variables::SYSCTLS => {
            for (key, value) in value.entries() {
                let place = place(file, value.line);
                gathering.sysctl(key.text().unwrap_or_default(), value.text().unwrap_or_default(), place);
            }
        }
        // Follows from the marks.
        variables::MARK_SET => {}
        "ansible.posix.sysctl" | "sysctl" => sysctl(file, value, gathering),
        "ansible.builtin.command" | "ansible.builtin.shell" | "command" | "shell" => {
            command(file, value, gathering)
        }
        _ => read(file, value, gathering),
    }
}

/// Arguments of `ip`, one statement an item.
fn lines(file: &str, ipv6: bool, list: &Yaml, gathering: &mut Gathering) {
    for item in list.items() {
        let text = item.text().unwrap_or_default();
        let text = if ipv6 { format!("ip -6 {text}") } else { format!("ip {text}") };
        script::line(file, item.line, &text, gathering);
    }
}

fn modes(file: &str, list: &Yaml, gathering: &mut Gathering) {
    for item in list.items() {
        let mut tokens = item.text().unwrap_or_default().split_whitespace();
        match (tokens.next(), tokens.next().and_then(script::infiniband_mode)) {
            (Some(interface), Some(value)) => {
                let place = Some(place(file, item.line));
                gathering.interface(interface).infiniband_mode =
                    Some(clearstream_schema::routing::Located { value, place });
            }
            _ => gathering.unread(file, item.line, &item.summary(), "no interface with its mode"),
        }
    }
}

fn sysctl(file: &str, task: &Yaml, gathering: &mut Gathering) {
    let text = |key: &str| task.get(key).and_then(Yaml::text);
    match (text("name").or_else(|| text("key")), text("value")) {
        (Some(name), Some(value)) if !name.contains("{{") && !value.contains("{{") => {
            gathering.sysctl(name, value, place(file, task.line));
        }
        _ if text("state") == Some("absent") => {}
        _ => gathering.unread(file, task.line, &task.summary(), "the sysctl or its value is a template"),
    }
}

/// `command: ip route replace ...`, also as `cmd:`; a block has a statement a line.
fn command(file: &str, task: &Yaml, gathering: &mut Gathering) {
    let body = task.get("cmd").unwrap_or(task);
    let Some(text) = body.text() else { return };
    let first = if text.contains('\n') { body.line + 1 } else { body.line };
    for (line, text) in (first..).zip(text.lines()) {
        let program = text.split_whitespace().next().unwrap_or_default();
        if program == "ip" || program.ends_with("/ip") {
            script::line(file, line, text, gathering);
        }
    }
}
