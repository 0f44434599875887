//! Lab files: the built-in ones, those of the user, and what is wrong with one
//! (file, line, key, what was meant).

mod check;

use std::path::Path;

use clearstream_configfile::{Document, explain, line_of};
use clearstream_schema::lab::LabFile;
use clearstream_sys::file::{DOCUMENT_BYTES, read_text};

pub(crate) use self::check::destination;
use crate::LabError;

/// Name and text of every built-in lab.
const BUILT_IN: &[(&str, &str)] = &[
    ("gateways-6", include_str!("../../../../labs/gateways-6.toml")),
    ("two-hosts", include_str!("../../../../labs/two-hosts.toml")),
    ("wan-1650km", include_str!("../../../../labs/wan-1650km.toml")),
    ("wan-1650km-defaults", include_str!("../../../../labs/wan-1650km-defaults.toml")),
    ("wan-1650km-unlimited", include_str!("../../../../labs/wan-1650km-unlimited.toml")),
];

/// Names of the built-in labs.
pub fn built_in_names() -> &'static [&'static str] {
    const NAMES: [&str; BUILT_IN.len()] = {
        let mut names = [""; BUILT_IN.len()];
        let mut index = 0;
        while index < names.len() {
            names[index] = BUILT_IN[index].0;
            index += 1;
        }
        names
    };
    &NAMES
}

/// Reads a built-in lab by its name, or a lab file by its path (anything with
/// a `/` or ending in `.toml`).
pub fn load(name_or_path: &str) -> Result<LabFile, LabError> {
    if let Some((name, text)) = BUILT_IN.iter().find(|(name, _)| *name == name_or_path) {
        return parse(Path::new(&format!("labs/{name}.toml")), text);
    }
    let is_path = name_or_path.contains('/') || name_or_path.ends_with(".toml");
    if !is_path {
        let (name, known) = (name_or_path.to_owned(), built_in_names().join(", "));
        return Err(LabError::Unknown { name, known });
    }
    let path = Path::new(name_or_path);
    let text = read_text(path, DOCUMENT_BYTES).map_err(LabError::file("read", path))?;
    parse(path, &text)
}

/// Reads the text of a lab file; `path` is for messages.
pub fn parse(path: &Path, text: &str) -> Result<LabFile, LabError> {
    let file: LabFile = toml::from_str(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        let document = Document::read(text);
        LabError::BadFile {
            path: path.to_owned(),
            line: line_of(text, offset),
            key: document.key_at(offset),
            problem: explain(error.message()),
        }
    })?;
    check::check(&file).map_err(|fault| LabError::BadFile {
        path: path.to_owned(),
        line: line_of(text, Document::read(text).offset_of(&fault.key)),
        key: fault.key,
        problem: fault.problem,
    })?;
    Ok(file)
}

/// Checks a lab that was not read from a file, or was changed since.
pub fn validate(file: &LabFile) -> Result<(), LabError> {
    check::check(file).map_err(|fault| LabError::BadFile {
        path: format!("lab {}", file.name).into(),
        line: 0,
        key: fault.key,
        problem: fault.problem,
    })
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
