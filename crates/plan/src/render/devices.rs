//! udev rules: an interface gets its settings whenever it appears.

use std::fmt::Write;

use clearstream_schema::plan::{LinkAttribute, Setting};

use super::{File, Kept, comment, interface, scripts};

pub(super) fn unfit(setting: &Setting) -> Option<&'static str> {
    match setting {
        Setting::Sysctl(_) => Some("udev acts on devices: use the format sysctl"),
        Setting::File(_) if interface(setting).is_none() => Some("not a file of a network interface"),
        _ => None,
    }
}

pub(super) fn udev(head: &str, kept: &[Kept<'_>]) -> Vec<File> {
    let mut text = head.to_owned();
    for Kept { step, value } in kept {
        let Some(interface) = interface(&step.setting) else { continue };
        let action = match &step.setting {
            Setting::Link { attribute: LinkAttribute::Mtu, .. } => format!("ATTR{{mtu}}=\"{value}\""),
            Setting::Link { attribute: LinkAttribute::TransmitQueueLength, .. } => {
                format!("ATTR{{tx_queue_len}}=\"{value}\"")
            }
            Setting::File(path) => {
                let name = path.splitn(5, '/').nth(4).unwrap_or_default();
                format!("ATTR{{{name}}}=\"{value}\"")
            }
            // `$name` is the interface's name after renaming (udev(7)).
            Setting::Qdisc { .. } => {
                format!("RUN+=\"/sbin/tc qdisc replace dev $name root {value}\"")
            }
            Setting::Ethtool { group, name, .. } => {
                let option = scripts::ethtool_option(group);
                let before = if group == "rss" { String::new() } else { format!("{name} ") };
                format!("RUN+=\"/sbin/ethtool {option} $name {before}{value}\"")
            }
            // What belongs to no interface's coming is not kept here.
            _ => continue,
        };
        // A rename comes as "move", with the new name.
        let _ = write!(
            text,
            "\n{}ACTION==\"add|move\", SUBSYSTEM==\"net\", KERNEL==\"{interface}\", {action}\n",
            comment(&step.reason)
        );
    }
    vec![File { path: "/etc/udev/rules.d/90-clearstream.rules".to_owned(), mode: 0o644, text }]
}
