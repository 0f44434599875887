//! Diagnosis of what limits a path.
//!
//! [`gather`] runs probes and short flows within a budget and collects what
//! both hosts report as [`Evidence`]; a stored record is evidence, too.
//! [`explain`] turns evidence into a [`Diagnosis`](clearstream_schema::diagnosis::Diagnosis):
//! it is pure, never panics, and reports when the evidence does not suffice.
//!
//! The order of the rules matters and is in [`explain`]: what makes a
//! later signature ambiguous is tested first. The signatures are those of the
//! kernel's own clocks and states, read by a thread other than the data threads:
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
mod format;
mod formulas;
mod gain;
mod gather;
mod hosts;
mod load;
pub mod passive;
mod series;
mod stages;
mod suggestions;

pub use evidence::{Evidence, FlowObservation, RecordEvidenceError};
pub use explain::explain;
pub use gather::{GatherError, GatherEvent, GatherOptions, gather};
