//! Rules of udev(7): an interface gets its settings whenever it appears.

use std::fmt::Write;

use clearstream_schema::plan::{LinkAttribute, Setting};

use super::shell::ethtool_option;
use crate::{
    backend::Backend,
    settings::{Commands, File, Kept, Settings, comment},
};

#[derive(Debug)]
pub(crate) struct Udev;

/// Link attributes and files of an interface, driver and qdisc through their tools.
static SETTINGS: Settings = Settings { commands: Commands::Ethtool, unfit, files };

impl Backend for Udev {
    fn name(&self) -> &'static str {
        "udev"
    }

    fn settings(&self) -> Option<&'static Settings> {
        Some(&SETTINGS)
    }
}

fn unfit(setting: &Setting, _value: &str) -> Option<&'static str> {
    match setting {
        Setting::Sysctl(_) => Some("udev acts on devices: use the format sysctl"),
        Setting::File(_) if setting.interface().is_none() => Some("not a file of a network interface"),
        Setting::File(_) | Setting::Link { .. } | Setting::Qdisc { .. } | Setting::Ethtool { .. } => None,
        _ => Some("a rule of udev does not set it"),
    }
}

fn files(head: &str, kept: &[Kept<'_>]) -> Vec<File> {
    let mut text = head.to_owned();
    for Kept { step, value } in kept {
        let Some(interface) = step.setting.interface() else { continue };
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
                let option = ethtool_option(group);
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
