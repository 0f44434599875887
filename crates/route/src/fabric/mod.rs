//! Fabric files: built-in ones and those of the user, errors (file, line, key,
//! suggestion), and the hosts that a file describes.

mod check;
mod error;
mod expand;
#[cfg(test)]
pub(crate) mod made;
mod pattern;

use std::path::Path;

use clearstream_configfile::{FileKind, Source};
use clearstream_schema::fabric::{FABRIC_SCHEMA, FabricFile};

pub use self::{
    error::FabricError,
    expand::{Fabric, Gateway, HostId},
    pattern::{AddressList, AddressPattern, NameList, Pattern},
};

const FABRICS: FileKind = FileKind {
    noun: "fabric",
    schema: FABRIC_SCHEMA,
    version: 1,
    folder: "fabrics",
    built_in: &[
        ("gateways-6", include_str!("../../../../fabrics/gateways-6.toml")),
        ("cumulus-wolf", include_str!("../../../../fabrics/cumulus-wolf.toml")),
        ("dual-stack", include_str!("../../../../fabrics/dual-stack.toml")),
        ("ten-thousand", include_str!("../../../../fabrics/ten-thousand.toml")),
    ],
};

/// Names of the built-in fabrics.
pub fn built_in_names() -> impl Iterator<Item = &'static str> {
    FABRICS.names()
}

/// Reads a built-in fabric by its name, or a fabric file by its path.
///
/// # Errors
/// [`FabricError::Config`].
pub fn load(name_or_path: &str) -> Result<Fabric, FabricError> {
    read(&FABRICS.find(name_or_path)?)
}

/// Reads the text of a fabric file; `path` is for messages.
///
/// # Errors
/// [`FabricError::Config`].
pub fn parse(path: &Path, text: &str) -> Result<Fabric, FabricError> {
    read(&Source::new(path, text))
}

fn read(source: &Source) -> Result<Fabric, FabricError> {
    let file: FabricFile = FABRICS.read(source)?;
    Fabric::new(file).map_err(|fault| source.invalid(fault).into())
}

#[cfg(test)]
mod tests;
