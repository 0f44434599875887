//! Every rule on evidence that was measured elsewhere or made by hand.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(unreachable_pub, reason = "a test is a program of its own")]

mod bottlenecks;
mod captured;
mod contention;
mod delay_line;
mod experiments;
mod interfaces;
mod interventions;
mod made;
mod settings;
mod signatures;
mod strange;
