//! Study files: the built-in ones, those of the user, and what is wrong with one
//! (file, line, key, suggestion).

use clearstream_configfile::{FileKind, Source};
use clearstream_schema::study::{STUDY_SCHEMA, StudyFile};
use clearstream_workload::Registry;

use crate::{StudyError, check};

const STUDIES: FileKind = FileKind {
    noun: "study",
    schema: STUDY_SCHEMA,
    version: 1,
    folder: "studies",
    built_in: &[
        ("clearstream-40ge", include_str!("../../../studies/clearstream-40ge.toml")),
        ("native-client", include_str!("../../../studies/native-client.toml")),
        ("native-client-storage", include_str!("../../../studies/native-client-storage.toml")),
        ("iwarp-verbs", include_str!("../../../studies/iwarp-verbs.toml")),
        ("explore-sensitivity", include_str!("../../../studies/explore-sensitivity.toml")),
        ("mesh", include_str!("../../../studies/mesh.toml")),
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
pub fn load(name_or_path: &str, registry: &Registry) -> Result<StudyFile, StudyError> {
    read(&STUDIES.find(name_or_path)?, registry)
}

/// Reads the text of a study file; `file` is what errors call it.
///
/// # Errors
/// [`StudyError::Config`].
pub fn parse(text: &str, file: &str, registry: &Registry) -> Result<StudyFile, StudyError> {
    read(&Source::new(file, text), registry)
}

fn read(source: &Source, registry: &Registry) -> Result<StudyFile, StudyError> {
    STUDIES.check_head(source)?;
    // Invalid TOML is reported by the next step.
    if let Some(document) = source.table() {
        check::check_keys(&document, registry).map_err(|fault| source.invalid(fault))?;
    }
    let mut study = STUDIES.read(source)?;
    name_figures(&mut study, registry);
    check::read_tables(&mut study).map_err(|fault| source.invalid(fault))?;
    check::check(&study, registry).map_err(|fault| source.invalid(fault))?;
    Ok(study)
}

/// Experiments that name no figure get that of their workload: a record, and what draws it, says
/// how without knowing workloads.
fn name_figures(study: &mut StudyFile, registry: &Registry) {
    for experiment in study.experiments.iter_mut().filter(|experiment| experiment.figure.is_none()) {
        experiment.figure = registry.workload(&experiment.workload).map(|workload| workload.figure());
    }
}
