//! The list of parts that could not be read, collected while the report is made.

use clearstream_schema::host::MissingPart;

use crate::attribute::AttributeError;

/// Parts that could not be read.
#[derive(Debug, Default)]
pub(crate) struct Missing(Vec<MissingPart>);

impl Missing {
    /// Adds a part with its source and the reason.
    pub(crate) fn note(
        &mut self,
        part: impl Into<String>,
        source: impl Into<String>,
        reason: impl Into<String>,
    ) {
        let part = MissingPart { part: part.into(), source: source.into(), reason: reason.into() };
        // Two readers may fail on the same file.
        if !self.0.contains(&part) {
            self.0.push(part);
        }
    }

    /// The value of a part that every host has; otherwise an entry is added.
    pub(crate) fn keep<T>(
        &mut self,
        part: impl Into<String>,
        result: Result<T, AttributeError>,
    ) -> Option<T> {
        result.map_err(|error| self.note(part, error.path(), error.reason())).ok()
    }

    /// The value of a part that a host may lack: an absent file adds no entry.
    pub(crate) fn keep_if_present<T>(
        &mut self,
        part: impl Into<String>,
        result: Result<T, AttributeError>,
    ) -> Option<T> {
        match result {
            Err(error) if error.is_absent() => None,
            other => self.keep(part, other),
        }
    }

    /// The list, in the order in which the parts are read.
    pub(crate) fn into_parts(self) -> Vec<MissingPart> {
        self.0
    }
}
