//! A POSIX shell script, and an Ansible play that installs it.

use std::fmt::Write;

use clearstream_schema::plan::{LinkAttribute, Setting};

use super::{File, Kept, comment, sysctls};

pub(super) fn shell(head: &str, kept: &[Kept<'_>]) -> Vec<File> {
    vec![File { path: "clearstream-settings.sh".to_owned(), mode: 0o755, text: script(head, kept, true) }]
}

fn script(head: &str, kept: &[Kept<'_>], with_sysctls: bool) -> String {
    let mut text = format!("#!/bin/sh\n{head}set -eu\n");
    for Kept { step, value } in kept {
        if !with_sysctls && matches!(step.setting, Setting::Sysctl(_)) {
            continue;
        }
        let _ = write!(text, "\n{}{}\n", comment(&step.reason), command(&step.setting, value));
    }
    text
}

/// The command that makes one change. Names and values were looked at: no
/// letter in them means anything to a shell between single quotes.
pub(super) fn command(setting: &Setting, value: &str) -> String {
    match setting {
        Setting::Sysctl(key) => format!("sysctl -q -w '{key}={value}'"),
        Setting::File(path) => format!("printf '%s\\n' '{value}' >'/{path}'"),
        Setting::Link { interface, attribute: LinkAttribute::Mtu } => {
            format!("ip link set dev '{interface}' mtu '{value}'")
        }
        Setting::Link { interface, attribute: LinkAttribute::TransmitQueueLength } => {
            format!("ip link set dev '{interface}' txqueuelen '{value}'")
        }
        Setting::Qdisc { interface } => format!("tc qdisc replace dev '{interface}' root {value}"),
        // `equal 4` are two words, and the name of the setting is none.
        Setting::Ethtool { interface, group, .. } if group == "rss" => {
            format!("ethtool {} '{interface}' {value}", ethtool_option(group))
        }
        Setting::Ethtool { interface, group, name } => {
            format!("ethtool {} '{interface}' '{name}' '{value}'", ethtool_option(group))
        }
        Setting::Nexthop { id } => format!("ip nexthop replace id {id} {value}"),
        Setting::Route { table, destination, metric } => {
            let family = if destination.address.is_ipv6() { "-6" } else { "-4" };
            // The word of a type comes before the destination.
            let (kind, rest) = match value.split_once(' ').unwrap_or((value, "")) {
                (kind @ ("blackhole" | "unreachable" | "prohibit" | "throw"), rest) => (kind, rest),
                _ => ("unicast", value),
            };
            format!("ip {family} route replace {kind} {destination} table {table} metric {metric} {rest}")
        }
        Setting::Rule { ipv6, priority, selector } => {
            let family = if *ipv6 { "-6" } else { "-4" };
            let rule = format!("pref {priority} {} {value}", selector.words());
            format!("ip {family} rule del {rule} 2>/dev/null || :\nip {family} rule add {rule}")
        }
        // The owner is left out: `ip` before 6.4 does not know the word.
        Setting::Address { interface, prefix } => {
            let at_once = if prefix.address.is_ipv6() { " nodad" } else { "" };
            format!("ip address replace {prefix} dev '{interface}'{at_once}")
        }
        // Left out before (`unfit_routing`).
        Setting::NetfilterTable { .. } => String::new(),
    }
}

/// ethtool(8).
pub(super) fn ethtool_option(group: &str) -> &'static str {
    match group {
        "channels" => "-L",
        "rings" => "-G",
        "coalesce" => "-C",
        "pause" => "-A",
        "rss" => "-X",
        _ => "-K",
    }
}

/// Sysctls go into sysctl.d; the rest into a script that a unit runs at boot.
pub(super) fn ansible(head: &str, kept: &[Kept<'_>]) -> Vec<File> {
    let mut text = format!(
        "---\n{head}- name: Settings planned by clearstream\n  hosts: \"{{{{ target | default('all') }}}}\"\n  become: true\n  tasks:\n"
    );
    let sysctls = sysctls::lines(kept);
    if !sysctls.is_empty() {
        text.push_str(&copy(
            "Keep the sysctls",
            "/etc/sysctl.d/90-clearstream.conf",
            "0644",
            sysctls.trim_start(),
        ));
        text.push_str(&run("Set the sysctls", &["sysctl", "-q", "-p", "/etc/sysctl.d/90-clearstream.conf"]));
    }
    if kept.iter().any(|kept| !matches!(kept.step.setting, Setting::Sysctl(_))) {
        let path = "/usr/local/sbin/clearstream-settings";
        text.push_str(&copy("Keep the other settings", path, "0755", &script("", kept, false)));
        let unit = format!(
            "[Unit]\nDescription=Settings planned by clearstream\nAfter=network.target\n\n\
             [Service]\nType=oneshot\nExecStart={path}\n\n[Install]\nWantedBy=multi-user.target\n"
        );
        text.push_str(&copy(
            "Keep them over a boot",
            "/etc/systemd/system/clearstream-settings.service",
            "0644",
            &unit,
        ));
        text.push_str(&run("Take the unit in", &["systemctl", "daemon-reload"]));
        text.push_str(&run(
            "Set the other settings",
            &["systemctl", "enable", "clearstream-settings.service"],
        ));
        text.push_str(&run("Make them now", &[path]));
    }
    vec![File { path: "clearstream.yml".to_owned(), mode: 0o644, text }]
}

fn copy(name: &str, path: &str, mode: &str, content: &str) -> String {
    let mut text = format!(
        "    - name: {name}\n      ansible.builtin.copy:\n        dest: {path}\n        mode: \"{mode}\"\n        content: |\n"
    );
    for line in content.lines() {
        // Text that Ansible would take for a template of its own is in reasons only.
        let line = line.replace("{{", "{ {").replace("{%", "{ %").replace("{#", "{ #");
        let _ = writeln!(text, "{}", format!("          {line}").trim_end());
    }
    text
}

fn run(name: &str, words: &[&str]) -> String {
    let mut text = format!("    - name: {name}\n      ansible.builtin.command:\n        argv:\n");
    for word in words {
        let _ = writeln!(text, "          - \"{word}\"");
    }
    text.push_str("      changed_when: true\n");
    text
}
