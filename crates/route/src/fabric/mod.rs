//! Fabric files: the built-in ones, those of the user, what is wrong with one
//! (file, line, key, what was meant), and the hosts that one stands for.

mod check;
mod error;
mod expand;
#[cfg(test)]
pub(crate) mod made;
mod pattern;

use std::path::Path;

use clearstream_configfile::{Document, explain, line_of};
use clearstream_sys::file;

pub use self::{
    check::Fault,
    error::FabricError,
    expand::{Fabric, Gateway, HostId},
    pattern::{AddressList, AddressPattern, NameList, Pattern},
};

/// Name and text of every built-in fabric.
const BUILT_IN: &[(&str, &str)] = &[
    ("gateways-6", include_str!("../../../../fabrics/gateways-6.toml")),
    ("cumulus-wolf", include_str!("../../../../fabrics/cumulus-wolf.toml")),
    ("dual-stack", include_str!("../../../../fabrics/dual-stack.toml")),
    ("ten-thousand", include_str!("../../../../fabrics/ten-thousand.toml")),
];

/// Names of the built-in fabrics.
pub fn built_in_names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(name, _)| *name)
}

/// Reads a built-in fabric by its name, or a fabric file by its path (anything
/// with a `/` or ending in `.toml`).
///
/// # Errors
/// An unknown name; a file that cannot be read; file, line and key of the first
/// thing that cannot be meant.
pub fn load(name_or_path: &str) -> Result<Fabric, FabricError> {
    if let Some((name, text)) = BUILT_IN.iter().find(|(name, _)| *name == name_or_path) {
        return parse(Path::new(&format!("fabrics/{name}.toml")), text);
    }
    if !name_or_path.contains('/') && !name_or_path.ends_with(".toml") {
        let known = built_in_names().collect::<Vec<_>>().join(", ");
        return Err(FabricError::Unknown { name: name_or_path.to_owned(), known });
    }
    let path = Path::new(name_or_path);
    let text = file::read_text(path, file::DOCUMENT_BYTES)
        .map_err(|source| FabricError::Read { path: path.to_owned(), source })?;
    parse(path, &text)
}

/// Reads the text of a fabric file; `path` is for messages.
///
/// # Errors
/// File, line and key of the first thing that cannot be meant.
pub fn parse(path: &Path, text: &str) -> Result<Fabric, FabricError> {
    let bad = |offset: usize, key: String, problem: String| FabricError::BadFile {
        path: path.to_owned(),
        line: line_of(text, offset),
        key,
        problem,
    };
    let file = toml::from_str(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        bad(offset, Document::read(text).key_at(offset), explain(error.message()))
    })?;
    Fabric::new(file)
        .map_err(|fault| bad(Document::read(text).offset_of(&fault.key), fault.key, fault.problem))
}

#[cfg(test)]
mod tests;
