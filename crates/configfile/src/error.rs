//! What can be wrong with a configuration file.

use std::{io, path::PathBuf};

/// A configuration file could not be found, read or understood.
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
        /// As typed.
        name: String,
        /// The nearest built-in name, or nothing.
        hint: String,
        /// Names of the built-in ones.
        known: String,
    },
    /// The file could not be read from disk.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file says something invalid.
    #[error("{}{}: {key}: {problem}", path.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Line, from 1; absent for a document that was not read from a file.
        line: Option<usize>,
        /// Key, as in `link[0].ends[1].host`.
        key: String,
        /// What is wrong and what to write instead.
        problem: String,
    },
}

/// A key and what is wrong with it: what a check of a document returns.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct Fault {
    /// Key, as in `class[0].link[0].addresses`.
    pub key: String,
    /// What is wrong and what to write instead.
    pub problem: String,
}

/// A check that failed at this key.
///
/// # Errors
/// Always.
pub fn fault<T>(key: impl Into<String>, problem: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { key: key.into(), problem: problem.into() })
}
