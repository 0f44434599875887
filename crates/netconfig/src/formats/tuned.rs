//! tuned-profiles(7).

use std::fmt::Write;

use clearstream_schema::plan::{LinkAttribute, Setting};

use crate::{
    backend::Backend,
    settings::{Commands, File, Kept, Settings, comment, interfaces},
};

#[derive(Debug)]
pub(crate) struct Tuned;

static SETTINGS: Settings = Settings { commands: Commands::None, unfit, files };

impl Backend for Tuned {
    fn name(&self) -> &'static str {
        "tuned"
    }

    fn settings(&self) -> Option<&'static Settings> {
        Some(&SETTINGS)
    }
}

fn unfit(setting: &Setting, _value: &str) -> Option<&'static str> {
    match setting {
        Setting::File(path) if !path.starts_with("sys/") => Some("tuned writes files below /sys only"),
        Setting::Qdisc { .. } => Some("tuned sets no qdisc"),
        Setting::Sysctl(_) | Setting::File(_) | Setting::Link { .. } | Setting::Ethtool { .. } => None,
        _ => Some("tuned does not set it"),
    }
}

fn files(head: &str, kept: &[Kept<'_>]) -> Vec<File> {
    let mut text = format!(
        "{head}# Before tuned 2.23 the folder is /etc/tuned/clearstream.\n\
         # To keep the profile that is in effect now, name it: include=NAME in [main].\n\
         [main]\nsummary=Settings planned by clearstream\n"
    );
    section(&mut text, "[sysctl]", kept, |setting| match setting {
        Setting::Sysctl(key) => Some(key.clone()),
        _ => None,
    });
    section(&mut text, "[sysfs]", kept, |setting| match setting {
        Setting::File(path) => Some(format!("/{path}")),
        _ => None,
    });
    for interface in interfaces(kept) {
        let lines = net_plugin(&interface, kept);
        if !lines.is_empty() {
            // A dot would be read as part of a plugin's name.
            let name = interface.replace(['.', ':'], "_");
            let _ = write!(text, "\n[net_{name}]\ntype=net\ndevices={interface}\n{lines}");
        }
    }
    vec![File { path: "/etc/tuned/profiles/clearstream/tuned.conf".to_owned(), mode: 0o644, text }]
}

fn section(text: &mut String, title: &str, kept: &[Kept<'_>], key: impl Fn(&Setting) -> Option<String>) {
    let mut is_open = false;
    for Kept { step, value } in kept {
        let Some(key) = key(&step.setting) else { continue };
        if !is_open {
            let _ = write!(text, "\n{title}\n");
            is_open = true;
        }
        let _ = writeln!(text, "{}{key}={value}", comment(&step.reason));
    }
}

/// Options of tuned's plugin "net" for one interface; a driver's values of one
/// group share a line.
fn net_plugin(name: &str, kept: &[Kept<'_>]) -> String {
    let mut text = String::new();
    let of_interface = |kept: &&Kept<'_>| kept.step.setting.interface().as_deref() == Some(name);
    for Kept { step, value } in kept.iter().filter(of_interface) {
        match step.setting {
            Setting::Link { attribute: LinkAttribute::Mtu, .. } => {
                let _ = writeln!(text, "mtu={value}");
            }
            Setting::Link { attribute: LinkAttribute::TransmitQueueLength, .. } => {
                let _ = writeln!(text, "txqueuelen={value}");
            }
            _ => {}
        }
    }
    for (group, option) in [
        ("features", "features"),
        ("coalesce", "coalesce"),
        ("pause", "pause"),
        ("rings", "ring"),
        ("channels", "channels"),
    ] {
        let values: Vec<String> = kept
            .iter()
            .filter(of_interface)
            .filter_map(|kept| match &kept.step.setting {
                Setting::Ethtool { group: found, name, .. } if found == group => {
                    Some(format!("{name} {}", kept.value))
                }
                _ => None,
            })
            .collect();
        if !values.is_empty() {
            let _ = writeln!(text, "{option}={}", values.join(" "));
        }
    }
    text
}
