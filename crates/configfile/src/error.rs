//! Errors of configuration files.

use std::{io, path::PathBuf};

use clearstream_schema::{control::FailureKind, failure::Classified};

/// A configuration file could not be found, read or parsed.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Neither a built-in document nor a path.
    #[error(
        "there is no {noun} \"{name}\"{hint}: built in are {known}; \
         a {noun} file is named with its path, as in ./{name}.toml"
    )]
    Unknown {
        /// `lab`, `study`.
        noun: &'static str,
        /// As entered.
        name: String,
        /// The nearest built-in name, or empty.
        hint: String,
        /// Names of the built-in ones.
        known: String,
    },
    /// The file could not be read from disk.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Path.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The file is invalid.
    #[error(
        "{}{}: {}: {}",
        path.display(),
        line.map(|line| format!(":{line}")).unwrap_or_default(),
        on_one_line(key),
        on_one_line(problem)
    )]
    Invalid {
        /// Path.
        path: PathBuf,
        /// Line, from 1; absent for a document that was not read from a file.
        line: Option<usize>,
        /// Key, such as `link[0].ends[1].host`.
        key: String,
        /// What is wrong, with a suggested correction.
        problem: String,
    },
}

impl Classified for ConfigError {
    fn failure_kind(&self) -> FailureKind {
        match self {
            Self::Unknown { .. } => FailureKind::Name,
            Self::Read { .. } => FailureKind::File,
            Self::Invalid { .. } => FailureKind::Invalid,
        }
    }
}

/// Escapes line breaks and other control characters of a text with values of a file.
fn on_one_line(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut line, c| {
        if c.is_control() {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
        line
    })
}

/// A key and its problem: the error of a check.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct Fault {
    /// Key, such as `class[0].link[0].addresses`.
    pub key: String,
    /// What is wrong, with a suggested correction.
    pub problem: String,
}

/// Returns the error of a check at this key.
///
/// # Errors
/// Always.
pub fn fault<T>(key: impl Into<String>, problem: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { key: key.into(), problem: problem.into() })
}
