//! Fabric files: the built-in ones, those of the user, what is wrong with one
//! (file, line, key, what was meant), and the hosts that one stands for.

mod error;

use std::path::Path;

use clearstream_schema::{
    document::{self, Document},
    fabric::FabricFile,
};

pub use self::error::FabricError;

/// Name and text of every built-in fabric.
const BUILT_IN: &[(&str, &str)] =
    &[("gateways-6", include_str!("../../../../fabrics/gateways-6.toml"))];

/// Names of the built-in fabrics.
pub fn built_in_names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(name, _)| *name)
}

/// Reads a built-in fabric by its name, or a fabric file by its path (anything
/// with a `/` or ending in `.toml`).
pub fn load(name_or_path: &str) -> Result<FabricFile, FabricError> {
    if let Some((name, text)) = BUILT_IN.iter().find(|(name, _)| *name == name_or_path) {
        return parse(Path::new(&format!("fabrics/{name}.toml")), text);
    }
    if !name_or_path.contains('/') && !name_or_path.ends_with(".toml") {
        let known = built_in_names().collect::<Vec<_>>().join(", ");
        return Err(FabricError::Unknown { name: name_or_path.to_owned(), known });
    }
    let path = Path::new(name_or_path);
    let text = std::fs::read_to_string(path)
        .map_err(|source| FabricError::Read { path: path.to_owned(), source })?;
    parse(path, &text)
}

/// Reads the text of a fabric file; `path` is for messages.
pub fn parse(path: &Path, text: &str) -> Result<FabricFile, FabricError> {
    toml::from_str(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        FabricError::BadFile {
            path: path.to_owned(),
            line: document::line_of(text, offset),
            key: Document::read(text).key_at(offset),
            problem: document::with_suggestion(error.message()),
        }
    })
}
