//! A number at the head of a report, with how sure it is.

use serde::Serialize;

use crate::link::Place;

/// One number at the head of the report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Headline {
    /// Subject.
    pub(crate) label: String,
    /// The number with its unit.
    pub(crate) value: String,
    /// Median of how many, and its interval.
    pub(crate) sure: String,
    /// Meaning, one sentence.
    pub(crate) detail: String,
    /// Published value.
    pub(crate) published: Option<String>,
    /// Link or hosts that it was measured over; absent where the whole page is about one path.
    pub(crate) path: Option<Place>,
    /// It may be read as a result; false for an effect that is within chance.
    pub(crate) proven: bool,
    /// Figure that shows it.
    pub(crate) figure: String,
}
