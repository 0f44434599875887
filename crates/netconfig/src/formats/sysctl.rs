//! `sysctl.conf` and the files of `sysctl.d` (sysctl.d(5)).

use std::fmt::Write;

use clearstream_schema::plan::Setting;
use clearstream_tune::syntax;

use crate::{
    backend::Backend,
    read::{
        Source,
        detect::{FileName, Reader, Turn},
        gathering::{Gathering, place},
    },
    settings::{Commands, File, Kept, Settings, comment},
};

/// Where they are kept.
pub(crate) const SYSCTL_PATH: &str = "/etc/sysctl.d/90-clearstream.conf";

#[derive(Debug)]
pub(crate) struct Sysctl;

static SETTINGS: Settings = Settings { commands: Commands::None, unfit, files };

const READER: Reader = Reader { turn: Turn::Sysctls, read };

impl Backend for Sysctl {
    fn name(&self) -> &'static str {
        "sysctl"
    }

    fn settings(&self) -> Option<&'static Settings> {
        Some(&SETTINGS)
    }

    fn named(&self, name: &FileName<'_>) -> Option<Reader> {
        (name.name == "sysctl.conf" || name.folder == "sysctl.d").then_some(READER)
    }

    /// The first setting has a key with a dot or slash.
    fn holding(&self, _name: &FileName<'_>, text: &str) -> Option<Reader> {
        let mut lines = text.lines().map(str::trim);
        let first = lines.find(|line| !line.is_empty() && !line.starts_with(['#', ';']))?;
        let (key, _) = first.split_once('=')?;
        key.trim().contains(['.', '/']).then_some(READER)
    }
}

fn read(source: &Source, gathering: &mut Gathering) {
    let parsed = syntax::parse(&source.text);
    for statement in parsed.statements {
        gathering.sysctl(&statement.key, &statement.value, place(&source.path, statement.line));
    }
    for slip in parsed.slips {
        gathering.unread(&source.path, slip.line, &slip.text, slip.reason);
    }
}

fn unfit(setting: &Setting, _value: &str) -> Option<&'static str> {
    match setting {
        Setting::Sysctl(_) => None,
        _ => Some("sysctl.d holds sysctls only"),
    }
}

fn files(head: &str, kept: &[Kept<'_>]) -> Vec<File> {
    vec![File { path: SYSCTL_PATH.to_owned(), mode: 0o644, text: format!("{head}{}", lines(kept)) }]
}

/// A line for every sysctl, its reason before it.
pub(crate) fn lines(kept: &[Kept<'_>]) -> String {
    let mut text = String::new();
    for Kept { step, value } in kept {
        if let Setting::Sysctl(key) = &step.setting {
            let _ = write!(text, "\n{}{key} = {value}\n", comment(&step.reason));
        }
    }
    text
}
