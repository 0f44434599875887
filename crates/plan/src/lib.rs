//! Reversible changes of a host: read, apply, verify, revert, and the journal
//! that makes them survive a crash.
//!
//! A [`Setting`](clearstream_schema::plan::Setting) is a place that holds one
//! text, so there is one way to change anything: note the text that is there,
//! write the new one, read it back. The journal is on disk before the first
//! change; [`recover`] ends whatever was interrupted in the state before or
//! the state after, never between.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod apply;
pub mod calls;
mod effective;
mod error;
mod families;
mod files;
mod folder;
mod host;
mod journal;
mod meaning;
mod netfilter;
mod pending;
mod qdisc;
mod remote;
mod render;
mod restore;
mod revert;
mod routing;
mod target;
mod trial;
mod verify;

pub use apply::{Applied, apply, apply_back, check_settings, read};
pub use error::{Conflict, Fault, PlanError, SettingError};
pub use families::Permitted;
pub use host::Host;
pub use meaning::same;
pub use pending::{Test, begin_test, is_under_test};
pub use remote::failure;
pub use render::{File, Format, LeftOut, Rendered, render};
pub use revert::{Reverted, history, plan_back, plan_of, recover, revert};
pub use target::{Event, Identity, Namespace, OnEvent, Options, Target};
pub use trial::{Confirmed, Trial, begin_trial, confirm, expire, trials};
pub use verify::verify;
