//! What limits a path.
//!
//! [`gather`] runs probes and short flows within a budget and collects what
//! both hosts report as [`Evidence`]; a stored record is evidence, too.
//! [`explain`] turns evidence into a [`Diagnosis`](clearstream_schema::diagnosis::Diagnosis):
//! it is pure, never panics, and says so when the evidence does not suffice.
//!
//! The order of the questions matters and is in [`explain`]: what makes a
//! later signature ambiguous is asked first. The signatures are those of the
//! kernel's own clocks and states, read from beside the data threads:
//! chronographs (Yan, Cheng et al., Linux 4.10), delivery rate samples (Cheng,
//! Cardwell et al., 4.9), socket memory; the idea of naming one limit per
//! moment is that of Web100 and T-RAT (Zhang, Breslau, Paxson, Shenker 2002).
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod causes;
mod delay_line;
mod each;
mod evidence;
mod experiments;
mod explain;
mod facts;
pub mod formulas;
mod gain;
mod gather;
mod hosts;
mod load;
mod series;
mod stages;
mod suggestions;
mod words;

pub use evidence::{Evidence, FlowObservation, RecordEvidenceError};
pub use explain::explain;
pub use gather::{GatherError, GatherEvent, Plan, gather};
