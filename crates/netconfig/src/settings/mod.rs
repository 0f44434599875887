//! A plan as files of the operator's system, so that it is there after the
//! next boot. What a format cannot express is named in the file and in the result.

use std::{borrow::Cow, fmt, str::FromStr};

use clearstream_schema::plan::{Plan, Setting, Step, is_default_qdisc};

use crate::backend::BACKENDS;

/// How a format expresses settings.
pub(crate) struct Settings {
    /// The commands in its files.
    pub(crate) commands: Commands,
    /// Why it cannot express a setting with this value.
    pub(crate) unfit: fn(&Setting, &str) -> Option<&'static str>,
    /// The files of the steps that it expresses; each begins with the comment.
    pub(crate) files: fn(&str, &[Kept<'_>]) -> Vec<File>,
}

/// Commands that files of a format run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Commands {
    /// None.
    None,
    /// ethtool(8).
    Ethtool,
    /// Any.
    Any,
}

/// A format in which settings are kept.
#[derive(Clone, Copy)]
pub struct Format {
    name: &'static str,
    settings: &'static Settings,
}

impl Format {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let formats = BACKENDS.iter();
        formats.filter_map(|format| Some(Self { name: format.name(), settings: format.settings()? }))
    }

    /// The name that an operator types.
    pub fn name(self) -> &'static str {
        self.name
    }
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl FromStr for Format {
    type Err = String;

    /// `sysctl.d` is `sysctl` too.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let name = if text == "sysctl.d" { "sysctl" } else { text };
        Self::all().find(|format| format.name == name).ok_or_else(|| {
            let names: Vec<&str> = Self::all().map(Self::name).collect();
            format!("\"{text}\" is no format: write one of {}", names.join(", "))
        })
    }
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Where it belongs on the host, or a bare name for what is run from anywhere.
    pub path: String,
    /// Permissions, `0o644`.
    pub mode: u32,
    /// Text.
    pub text: String,
}

/// A step that a format cannot express.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// The setting.
    pub setting: Setting,
    /// Cause.
    pub reason: String,
}

/// Files, and what they do not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// In the order in which to install them; none when nothing can be expressed.
    pub files: Vec<File>,
    /// Steps that are not in them.
    pub left_out: Vec<LeftOut>,
}

/// Writes a plan in a format.
pub fn render(plan: &Plan, format: Format) -> Rendered {
    let (kept, left_out) = split(plan, format);
    let head = head(plan, &left_out);
    let files = if kept.is_empty() { Vec::new() } else { (format.settings.files)(&head, &kept) };
    Rendered { files, left_out }
}

/// Steps that a format expresses, with the desired text, and the others.
fn split(plan: &Plan, format: Format) -> (Vec<Kept<'_>>, Vec<LeftOut>) {
    let (mut kept, mut left_out) = (Vec::new(), Vec::new());
    for step in &plan.steps {
        let reason = match step.desired.as_ref().map(ToString::to_string) {
            None => Some("it takes the setting away".to_owned()),
            Some(value) if value.contains(['\n', '\r', '\0']) => Some("its value is no line".to_owned()),
            Some(value) => match unfit(format, step, &value) {
                None => {
                    kept.push(Kept { step, value });
                    None
                }
                reason => reason,
            },
        };
        left_out.extend(reason.map(|reason| LeftOut { setting: step.setting.clone(), reason }));
    }
    (kept, left_out)
}

/// A step that is in the files.
#[derive(Debug, Clone)]
pub(crate) struct Kept<'a> {
    pub(crate) step: &'a Step,
    pub(crate) value: String,
}

fn unfit(format: Format, step: &Step, value: &str) -> Option<String> {
    if let Some(name) = step.setting.names().into_iter().find(|name| !is_plain(name)) {
        return Some(format!("the name \"{name}\" has letters that no configuration file takes"));
    }
    let commands = format.settings.commands;
    if let Some(reason) = unfit_routing(commands, &step.setting) {
        return Some(reason.to_owned());
    }
    if let Some(reason) = unfit_table(commands, &step.setting, value) {
        return Some(reason.to_owned());
    }
    if !value.chars().all(|letter| letter.is_ascii_graphic() || letter == ' ')
        || value.contains(['\'', '"', '\\', '$', '`', '%', '{', '#', ';'])
    {
        return Some("its value has letters that not every configuration file takes".to_owned());
    }
    if let Some(reason) = (format.settings.unfit)(&step.setting, value) {
        return Some(reason.to_owned());
    }
    let makes_default = matches!(step.setting, Setting::Qdisc { .. }) && is_default_qdisc(value);
    makes_default.then(|| "the kernel makes its default qdisc by itself".to_owned())
}

/// An indirection table is set by ethtool(8) alone, and there by its keyword `equal`.
fn unfit_table(commands: Commands, setting: &Setting, value: &str) -> Option<&'static str> {
    match setting {
        Setting::Ethtool { group, .. } if group == "rss" => {
            let by_ethtool = commands != Commands::None && value.starts_with("equal ");
            (!by_ethtool).then_some("an indirection table: `ethtool -X` sets it, see the format shell")
        }
        _ => None,
    }
}

/// Routes are kept by files of their own, whole hosts at a time.
fn unfit_routing(commands: Commands, setting: &Setting) -> Option<&'static str> {
    let is_script = commands == Commands::Any;
    match setting {
        Setting::NetfilterTable { .. } => Some("it is a table of nft: `clearstream route render` writes it"),
        _ if setting.is_routing() && !is_script => {
            Some("it is part of the host's routing: `clearstream route render` writes it")
        }
        _ => None,
    }
}

fn is_plain(name: &str) -> bool {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "._-/:@".contains(letter);
    !name.is_empty() && !name.starts_with('-') && !name.contains("..") && name.chars().all(allowed)
}

/// The comment that heads every file.
fn head(plan: &Plan, left_out: &[LeftOut]) -> String {
    let mut lines = vec![
        format!("Made by clearstream for {}, kernel {}.", plan.host.name, plan.host.kernel),
        format!("Purpose: {}", plan.purpose),
    ];
    for LeftOut { setting, reason } in left_out {
        lines.push(format!("Not here: {setting}: {reason}."));
    }
    lines.iter().map(|line| comment(line)).collect()
}

/// One comment line; a reason may hold anything.
pub(crate) fn comment(text: &str) -> String {
    let text: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    format!("# {}\n", text.trim())
}

/// Interfaces of the steps, in order, each once.
pub(crate) fn interfaces<'a>(kept: &[Kept<'a>]) -> Vec<Cow<'a, str>> {
    let mut found = Vec::new();
    for kept in kept {
        if let Some(interface) = kept.step.setting.interface()
            && !found.contains(&interface)
        {
            found.push(interface);
        }
    }
    found
}
