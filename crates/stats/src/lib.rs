//! The few statistics that a measurement needs: where the middle is, how sure
//! that is, whether two sets differ, and whether a series had settled.
//!
//! Goodput samples are not normally distributed (a path has fast and slow
//! spells), so nothing here assumes it: medians with order statistics, pairs
//! with signed ranks, and permutation only; counts are compared with shares by
//! Pearson's test. Everything random takes a seed, and the generator is our own,
//! so that the same record gives the same numbers with every version of the program.
//! No I/O, no clock, no dependency.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod chi_square;
mod effect;
mod interval;
mod paired;
mod permutation;
mod quantile;
mod random;
mod steady;

pub use chi_square::{Fit, chance_deviation, chi_square_tail, goodness_of_fit};
pub use effect::{Block, Effect, Moderator, PRACTICAL_RATIO, groups_differ};
pub use interval::{IntervalEstimate, LEAST_VALUES, median_interval};
pub use paired::{LEAST_PAIRS, PairedRatio, least_probability, paired_ratio};
pub use permutation::{EXACT_LIMIT, false_discovery_adjusted, permutation_test};
pub use quantile::{median, quantile};
pub use random::Random;
pub use steady::{MINIMUM_POINTS, NEGLIGIBLE_TREND_RATIO, Trend, steady, trend};
