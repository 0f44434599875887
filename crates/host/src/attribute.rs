//! One kernel attribute as a value: read below the root, then parsed, with an
//! error that says where and why.

use std::str::FromStr;

use crate::{
    parse::ParseError,
    root::{HostRoot, ReadError},
};

/// An attribute that could not be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttributeError {
    /// The file could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The file does not have the kernel's form.
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

    /// The file is not there.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self, Self::Read(error) if error.is_absent())
    }
}

impl HostRoot {
    /// A whole file through a parser.
    pub(crate) fn parse<T>(
        &self,
        rel: &str,
        parser: impl FnOnce(&str) -> Result<T, ParseError>,
    ) -> Result<T, AttributeError> {
        let text = self.read(rel)?;
        parser(&text).map_err(|source| AttributeError::Parse { path: rel.to_owned(), source })
    }

    /// A file of one line, without its end.
    pub(crate) fn line(&self, rel: &str) -> Result<String, AttributeError> {
        Ok(self.read(rel)?.trim().to_owned())
    }

    /// A file of one number.
    pub(crate) fn number<T: FromStr>(&self, rel: &str) -> Result<T, AttributeError> {
        self.parse(rel, |text| text.trim().parse().map_err(|_| ParseError::new("a number", text.trim())))
    }

    /// A file of one number where -1 means "not known" (nodes, packages, speeds).
    pub(crate) fn known_number(&self, rel: &str) -> Result<Option<u32>, AttributeError> {
        self.parse(rel, |text| match text.trim() {
            "-1" => Ok(None),
            text => text.parse().map(Some).map_err(|_| ParseError::new("a number", text)),
        })
    }

    /// Last name of a link's target, as in `driver -> ../../bus/pci/drivers/igb`.
    pub(crate) fn link_name(&self, rel: &str) -> Result<String, AttributeError> {
        let target = self.link_target(rel)?;
        Ok(target.rsplit('/').next().unwrap_or_default().to_owned())
    }
}
