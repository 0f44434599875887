//! Reversible changes of a host: read, apply, verify, revert, and the journal
//! that makes them survive a crash.
//!
//! A [`Setting`](clearstream_schema::plan::Setting) is a place that holds one value,
//! so every change has the same steps: save the current value, write the new one,
//! read it back. What is particular to a kind of setting is in its file of `families`. The journal is on disk before the first change; [`recover`] brings
//! an interrupted change to the state before or the state after, never between.
//! [`Guarded`] is the only path for operators and agents: with a guard of the
//! connections by which the host is controlled, a guardian process, and
//! confirm-within.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod apply;
pub mod calls;
mod confirm;
mod error;
mod failure;
mod families;
mod files;
mod folder;
mod gone;
mod guard;
mod host;
mod journal;
mod modules;
mod pending;
mod permitted;
mod restore;
mod revert;
mod service;
mod standing;
mod target;
mod texts;
mod verify;

pub use apply::{Applied, apply, check_settings, read};
pub use confirm::{Confirmed, Unconfirmed, await_confirmation, confirm, confirm_newest, expire, unconfirmed};
pub use error::{Conflict, Fault, PlanError, SettingError};
pub use families::same;
pub use gone::Needed;
pub use guard::{Danger, Duty, Guard, Guarded, Snapshot, settle};
pub use host::Host;
pub use pending::{Test, begin_test, is_under_test};
pub use permitted::Permitted;
pub use revert::{Reverted, history, plan_back, plan_of, recover, revert};
pub use service::Plans;
pub use standing::{added, is_changing, standing};
pub use target::{BeforeChanges, Begun, Event, Identity, Namespace, OnEvent, Options, Target};
pub use verify::verify;
