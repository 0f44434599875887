//! Reading study files: from the name of a built-in study or from a path.

use std::path::Path;

use clearstream_configfile::{did_you_mean, explain};
use clearstream_schema::study::StudyFile;
use clearstream_sys::file;
use toml::de::{DeTable, DeValue};

use crate::{StudyError, check};

/// Built-in studies, by name.
const BUILT_IN: &[(&str, &str)] = &[
    ("clearstream-40ge", include_str!("../../../studies/clearstream-40ge.toml")),
    ("native-client", include_str!("../../../studies/native-client.toml")),
];

/// Names of the built-in studies.
pub fn built_in() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(name, _)| *name)
}

/// Reads a built-in study by its name, or a study file by its path.
///
/// # Errors
/// File, line and key of the first thing that means nothing, with what was meant.
pub fn load(name_or_path: &str) -> Result<StudyFile, StudyError> {
    if let Some((name, text)) = BUILT_IN.iter().find(|(name, _)| *name == name_or_path) {
        return parse(text, &format!("studies/{name}.toml"));
    }
    let path = Path::new(name_or_path);
    match file::read_text(path, file::DOCUMENT_BYTES) {
        Ok(text) => parse(&text, name_or_path),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(StudyError::Unknown {
            name: name_or_path.to_owned(),
            hint: did_you_mean(name_or_path, built_in()),
            known: built_in().collect(),
        }),
        Err(source) => Err(StudyError::Read { path: path.to_owned(), source }),
    }
}

/// Reads the text of a study file; `file` is what errors call it.
///
/// # Errors
/// As [`load`].
pub fn parse(text: &str, file: &str) -> Result<StudyFile, StudyError> {
    let study: StudyFile = toml::from_str(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start);
        StudyError::File {
            file: file.to_owned(),
            line: line_at(text, start),
            key: key_at(text, start, error.message()),
            message: explain(error.message()),
        }
    })?;
    check::check(&study).map_err(|problem| StudyError::File {
        file: file.to_owned(),
        line: line_of(text, &problem.place),
        key: problem.place.iter().rev().find_map(|step| match step {
            Step::Key(key) => Some(key.clone()),
            Step::Index(_) => None,
        }),
        message: problem.message,
    })?;
    Ok(study)
}

/// One step from a document into its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Key of a table.
    Key(String),
    /// Place in a list.
    Index(usize),
}

impl From<&str> for Step {
    fn from(key: &str) -> Self {
        Self::Key(key.to_owned())
    }
}

impl From<usize> for Step {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

fn line_at(text: &str, place: usize) -> usize {
    1 + text.as_bytes()[..place.min(text.len())].iter().filter(|byte| **byte == b'\n').count()
}

/// The key that an error is about: the unknown one, the missing one, or the
/// one that the line begins with.
fn key_at(text: &str, place: usize, message: &str) -> Option<String> {
    if message.contains("unknown field") || message.contains("missing field") {
        return message.split('`').nth(1).map(str::to_owned);
    }
    let line = text.lines().nth(line_at(text, place) - 1)?;
    let key = line.split_once('=')?.0.trim();
    (!key.is_empty()).then(|| key.to_owned())
}

/// Line of the last step that the document has.
fn line_of(text: &str, place: &[Step]) -> usize {
    let Ok(document) = DeTable::parse(text) else { return 1 };
    let mut start = 0;
    let root = DeValue::Table(document.into_inner());
    let mut value = &root;
    for step in place {
        let found = match (step, value) {
            (Step::Key(key), DeValue::Table(table)) => table
                .iter()
                .find(|(name, _)| name.get_ref() == key.as_str())
                .map(|(name, value)| (name.span(), value)),
            (Step::Index(index), DeValue::Array(list)) => list.get(*index).map(|value| (value.span(), value)),
            _ => None,
        };
        let Some((span, next)) = found else { break };
        start = span.start;
        value = next.get_ref();
    }
    line_at(text, start)
}
