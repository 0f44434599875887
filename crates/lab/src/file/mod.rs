//! Lab files: built-in and user-defined, with errors that report file, line,
//! key and a suggested correction.

mod check;

use std::path::Path;

use clearstream_configfile::{ConfigError, FileKind, Source};
use clearstream_schema::lab::{LAB_SCHEMA, LabFile};

pub(crate) use self::check::destination;
use crate::LabError;

const LABS: FileKind = FileKind {
    noun: "lab",
    schema: LAB_SCHEMA,
    version: 1,
    folder: "labs",
    built_in: &[
        ("gateways-6", include_str!("../../../../labs/gateways-6.toml")),
        ("native-client", include_str!("../../../../labs/native-client.toml")),
        ("native-client-gluster", include_str!("../../../../labs/native-client-gluster.toml")),
        ("two-hosts", include_str!("../../../../labs/two-hosts.toml")),
        ("wan-1650km", include_str!("../../../../labs/wan-1650km.toml")),
        ("wan-1650km-defaults", include_str!("../../../../labs/wan-1650km-defaults.toml")),
        ("wan-1650km-unlimited", include_str!("../../../../labs/wan-1650km-unlimited.toml")),
    ],
};

/// Iterates over the names of the built-in labs.
pub fn built_in_names() -> impl Iterator<Item = &'static str> {
    LABS.names()
}

/// Reads a built-in lab by its name, or a lab file by its path.
///
/// # Errors
/// [`LabError::Config`].
pub fn load(name_or_path: &str) -> Result<LabFile, LabError> {
    read(&LABS.find(name_or_path)?)
}

/// Reads the text of a lab file; `path` is for messages.
///
/// # Errors
/// [`LabError::Config`].
pub fn parse(path: &Path, text: &str) -> Result<LabFile, LabError> {
    read(&Source::new(path, text))
}

fn read(source: &Source) -> Result<LabFile, LabError> {
    let file = LABS.read(source)?;
    check::check(&file).map_err(|fault| source.invalid(fault))?;
    Ok(file)
}

/// Validates a lab that was not read from a file, or was changed since.
pub fn validate(file: &LabFile) -> Result<(), LabError> {
    check::check(file).map_err(|fault| {
        let path = format!("lab {}", file.name).into();
        ConfigError::Invalid { path, line: None, key: fault.key, problem: fault.problem }.into()
    })
}

#[cfg(test)]
mod tests;
