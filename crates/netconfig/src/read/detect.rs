//! Format of a file, by its name and, where that does not decide, by its text.

use super::{
    Source,
    gathering::Gathering,
    nearest, script,
    yaml::{self, Yaml},
};
use crate::{backend::BACKENDS, routes};

/// When a file is read: names of tables before what uses them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Turn {
    /// Names of numbers.
    Names,
    /// An interface with what belongs to it.
    Interfaces,
    /// What adds to an interface.
    DropIns,
    /// Documents of several interfaces.
    Documents,
    /// Commands.
    Scripts,
    /// Units that call commands.
    Units,
    /// Rules of nftables.
    Nftables,
    /// Sysctls: the last file wins.
    Sysctls,
}

/// What reads a file, and when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader {
    pub(crate) turn: Turn,
    pub(crate) read: fn(&Source, &mut Gathering),
}

/// Parts of a path that decide the format of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileName<'a> {
    pub(crate) name: &'a str,
    /// The folder that it lies in.
    pub(crate) folder: &'a str,
    /// What follows the last dot.
    pub(crate) extension: &'a str,
}

/// What is done with a file, in the order of reading.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Known {
    /// It is read, in the order of turns and formats.
    By(Reader, usize),
    /// A constant file of our own, which has no configuration.
    Own,
    /// A host gets routes by it, and it is not read: it is named.
    Foreign,
}

impl Known {
    /// Place among the files of a host.
    pub(crate) fn order(self) -> Option<(Turn, usize)> {
        match self {
            Self::By(reader, format) => Some((reader.turn, format)),
            Self::Own | Self::Foreign => None,
        }
    }
}

/// The last part of a path.
pub(crate) fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// What a file is; none when nobody knows it.
pub(crate) fn known(source: &Source) -> Option<Known> {
    if routes::is_constant(&source.text) {
        return Some(Known::Own);
    }
    let name = last_part(&source.path);
    let name = FileName {
        name,
        folder: source.path.rsplit('/').nth(1).unwrap_or_default(),
        extension: name.rsplit_once('.').map_or("", |(_, extension)| extension),
    };
    let mut formats = BACKENDS.iter().enumerate();
    let named = formats.find_map(|(at, format)| Some(Known::By(format.named(&name)?, at)));
    if named.is_some() {
        return named;
    }
    // JSON is YAML too: states of nmstate are printed so.
    let is_yaml = name.extension == "json" && !script::json::is_json(&source.text);
    if is_yaml || matches!(name.extension, "yaml" | "yml") {
        return Some(Known::By(Reader { turn: Turn::Documents, read: read_yaml }, 0));
    }
    // A line of it may look like one that ip(8) takes or prints.
    if nearest::is_foreign_configuration(source) {
        return Some(Known::Foreign);
    }
    let mut formats = BACKENDS.iter().enumerate().rev();
    formats.find_map(|(at, format)| Some(Known::By(format.holding(&name, &source.text)?, at)))
}

/// Whether a text has a line.
pub(crate) fn has_line(text: &str, line: &str) -> bool {
    text.lines().any(|known| known.trim() == line)
}

fn read_yaml(source: &Source, gathering: &mut Gathering) {
    match yaml::documents(&source.text) {
        Ok(documents) => {
            for document in &documents {
                read_document(&source.path, document, gathering);
            }
        }
        Err(yaml::NoYaml(line, reason)) => {
            gathering.unread(&source.path, line, last_part(&source.path), format!("no YAML: {reason}"));
        }
    }
}

fn read_document(file: &str, document: &Yaml, gathering: &mut Gathering) {
    if let Some(read) = BACKENDS.iter().find_map(|format| format.document(document)) {
        read(file, document, gathering);
    }
}
