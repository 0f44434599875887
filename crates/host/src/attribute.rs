//! One kernel attribute as a value: read below the root and parsed, with an error that names the path and the
//! reason.

use std::str::FromStr;

use crate::{
    parse::ParseError,
    root::{HostRoot, ReadError},
};

/// An attribute that could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttributeError {
    /// The file could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The file does not have the kernel's format.
    #[error("/{path}: {source}")]
    Parse {
        /// Path below the root.
        path: String,
        /// What is wrong with it.
        source: ParseError,
    },
}

impl AttributeError {
    /// The path, with its leading slash.
    pub(crate) fn path(&self) -> String {
        match self {
            Self::Read(error) => error.path(),
            Self::Parse { path, .. } => format!("/{path}"),
        }
    }

    /// The reason without the path.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Read(error) => error.reason(),
            Self::Parse { source, .. } => source.to_string(),
        }
    }

    /// The file does not exist.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self, Self::Read(error) if error.is_absent())
    }
}

impl HostRoot {
    /// Reads a whole file and parses it.
    pub(crate) fn parse<T>(
        &self,
        rel: &str,
        parser: impl FnOnce(&str) -> Result<T, ParseError>,
    ) -> Result<T, AttributeError> {
        let text = self.read(rel)?;
        parser(&text).map_err(|source| AttributeError::Parse { path: rel.to_owned(), source })
    }

    /// Reads a file of one line, without its line end.
    pub(crate) fn line(&self, rel: &str) -> Result<String, AttributeError> {
        Ok(self.read(rel)?.trim().to_owned())
    }

    /// Reads a file of one number.
    pub(crate) fn number<T: FromStr>(&self, rel: &str) -> Result<T, AttributeError> {
        self.parse(rel, |text| text.trim().parse().map_err(|_| ParseError::new("a number", text.trim())))
    }

    /// Reads a file of one number where -1 means "unknown" (nodes, packages, speeds).
    pub(crate) fn known_number(&self, rel: &str) -> Result<Option<u32>, AttributeError> {
        self.parse(rel, |text| match text.trim() {
            "-1" => Ok(None),
            text => text.parse().map(Some).map_err(|_| ParseError::new("a number", text)),
        })
    }

    /// Last component of a link's target, as in `driver -> ../../bus/pci/drivers/igb`.
    pub(crate) fn link_name(&self, rel: &str) -> Result<String, AttributeError> {
        let target = self.link_target(rel)?;
        Ok(target.rsplit('/').next().unwrap_or_default().to_owned())
    }
}
