//! Statistics of measurements: location with confidence intervals, tests of differences between two sets, and
//! of stationarity of a series.
//!
//! Goodput samples are not normally distributed (a path has fast and slow periods), so no method assumes it:
//! medians with order statistics, pairs with signed ranks, and permutation tests only; counts are compared
//! with expected proportions by Pearson's test. All random methods take a seed, and the generator is part of
//! this crate, so that the same record gives the same numbers with every version of the program. No I/O, no
//! clock, no dependency.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod change_point;
mod chi_square;
mod effect;
mod interval;
mod paired;
mod permutation;
mod quantile;
mod random;
mod steady;

pub use change_point::{ChangePoint, LEAST_SERIES, change_points};
pub use chi_square::{Fit, chance_deviation, goodness_of_fit};
pub use effect::{Block, Effect, Moderator, PRACTICAL_RATIO};
pub use interval::{IntervalEstimate, median_interval};
pub use paired::{LEAST_PAIRS, PairedRatio, least_probability, paired_ratio};
pub use permutation::{false_discovery_adjusted, permutation_test};
pub use quantile::{median, nearest_rank};
pub use random::Random;
pub use steady::steady;
