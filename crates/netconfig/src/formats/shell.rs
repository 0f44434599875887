//! A POSIX shell script.

use std::fmt::Write;

use clearstream_schema::{
    plan::{LinkAttribute, Setting},
    routing::RouteAction,
};

use crate::{
    backend::Backend,
    settings::{Commands, File, Kept, Settings, comment},
};

#[derive(Debug)]
pub(crate) struct Shell;

static SETTINGS: Settings = Settings { commands: Commands::Any, unfit, files };

impl Backend for Shell {
    fn name(&self) -> &'static str {
        "shell"
    }

    fn settings(&self) -> Option<&'static Settings> {
        Some(&SETTINGS)
    }
}

pub(crate) fn unfit(setting: &Setting, value: &str) -> Option<&'static str> {
    command(setting, value).is_none().then_some("no command is known that makes it")
}

fn files(head: &str, kept: &[Kept<'_>]) -> Vec<File> {
    vec![File { path: "clearstream-settings.sh".to_owned(), mode: 0o755, text: script(head, kept, true) }]
}

pub(crate) fn script(head: &str, kept: &[Kept<'_>], with_sysctls: bool) -> String {
    let mut text = format!("#!/bin/sh\n{head}set -eu\n");
    for Kept { step, value } in kept {
        if !with_sysctls && matches!(step.setting, Setting::Sysctl(_)) {
            continue;
        }
        let command = command(&step.setting, value).unwrap_or_default();
        let _ = write!(text, "\n{}{command}\n", comment(&step.reason));
    }
    text
}

/// The command that makes one change, where one is known. Names and values are validated: none
/// has a character that is special to a shell between single quotes.
fn command(setting: &Setting, value: &str) -> Option<String> {
    Some(match setting {
        Setting::Sysctl(key) => format!("sysctl -q -w '{key}={value}'"),
        Setting::File(path) => format!("printf '%s\\n' '{value}' >'/{path}'"),
        Setting::Link { interface, attribute: LinkAttribute::Mtu } => {
            format!("ip link set dev '{interface}' mtu '{value}'")
        }
        Setting::Link { interface, attribute: LinkAttribute::TransmitQueueLength } => {
            format!("ip link set dev '{interface}' txqueuelen '{value}'")
        }
        Setting::Qdisc { interface } => format!("tc qdisc replace dev '{interface}' root {value}"),
        // `equal 4` are two arguments; the name of the setting is no argument.
        Setting::Ethtool { interface, group, .. } if group == "rss" => {
            format!("ethtool {} '{interface}' {value}", ethtool_option(group))
        }
        Setting::Ethtool { interface, group, name } => {
            format!("ethtool {} '{interface}' '{name}' '{value}'", ethtool_option(group))
        }
        Setting::Nexthop { id } => format!("ip nexthop replace id {id} {value}"),
        Setting::Route { table, destination, metric } => {
            let family = if destination.address.is_ipv6() { "-6" } else { "-4" };
            // The keyword of a type comes before the destination.
            let (kind, rest) = match value.split_once(' ').unwrap_or((value, "")) {
                (kind, rest) if RouteAction::of_type(kind).is_some() => (kind, rest),
                _ => ("unicast", value),
            };
            format!("ip {family} route replace {kind} {destination} table {table} metric {metric} {rest}")
        }
        Setting::Rule { ipv6, priority, selector } => {
            let family = if *ipv6 { "-6" } else { "-4" };
            let rule = format!("pref {priority} {} {value}", selector.ip_arguments());
            format!("ip {family} rule del {rule} 2>/dev/null || :\nip {family} rule add {rule}")
        }
        // The owner is left out: `ip` before 6.4 does not know `proto` here.
        Setting::Address { interface, prefix } => {
            let at_once = if prefix.address.is_ipv6() { " nodad" } else { "" };
            format!("ip address replace {prefix} dev '{interface}'{at_once}")
        }
        _ => return None,
    })
}

/// ethtool(8).
pub(crate) fn ethtool_option(group: &str) -> &'static str {
    match group {
        "channels" => "-L",
        "rings" => "-G",
        "coalesce" => "-C",
        "pause" => "-A",
        "rss" => "-X",
        _ => "-K",
    }
}
