//! The list of parts that could not be read, filled while the report is made.

use clearstream_schema::host::MissingPart;

use crate::attribute::AttributeError;

/// Parts that could not be read so far.
#[derive(Debug, Default)]
pub(crate) struct Missing(Vec<MissingPart>);

impl Missing {
    /// Notes a part with its source and the reason.
    pub(crate) fn note(
        &mut self,
        part: impl Into<String>,
        source: impl Into<String>,
        reason: impl Into<String>,
    ) {
        let part = MissingPart { part: part.into(), source: source.into(), reason: reason.into() };
        // Two readers may meet the same garbled file.
        if !self.0.contains(&part) {
            self.0.push(part);
        }
    }

    /// The value of a part that every host has; else a note.
    pub(crate) fn keep<T>(
        &mut self,
        part: impl Into<String>,
        result: Result<T, AttributeError>,
    ) -> Option<T> {
        result.map_err(|error| self.note(part, error.path(), error.reason())).ok()
    }

    /// The value of a part that a host may lack: an absent file is no fault.
    pub(crate) fn keep_if_there<T>(
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
