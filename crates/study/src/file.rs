//! Study files: the built-in ones, those of the user, and what is wrong with one
//! (file, line, key, what was meant).

use clearstream_configfile::{FileKind, Source};
use clearstream_schema::study::{STUDY_SCHEMA, StudyFile};

use crate::{StudyError, check};

const STUDIES: FileKind = FileKind {
    noun: "study",
    schema: STUDY_SCHEMA,
    version: 1,
    folder: "studies",
    built_in: &[
        ("clearstream-40ge", include_str!("../../../studies/clearstream-40ge.toml")),
        ("native-client", include_str!("../../../studies/native-client.toml")),
    ],
};

/// Names of the built-in studies.
pub fn built_in() -> impl Iterator<Item = &'static str> {
    STUDIES.names()
}

/// Reads a built-in study by its name, or a study file by its path.
///
/// # Errors
/// [`StudyError::Config`].
pub fn load(name_or_path: &str) -> Result<StudyFile, StudyError> {
    read(&STUDIES.find(name_or_path)?)
}

/// Reads the text of a study file; `file` is what errors call it.
///
/// # Errors
/// [`StudyError::Config`].
pub fn parse(text: &str, file: &str) -> Result<StudyFile, StudyError> {
    read(&Source::new(file, text))
}

fn read(source: &Source) -> Result<StudyFile, StudyError> {
    let study = STUDIES.read(source)?;
    check::check(&study).map_err(|fault| source.invalid(fault))?;
    Ok(study)
}
