//! The delay line: a link with delay, rate, jitter and loss in user space, for
//! kernels without netem (containers, cloud kernels).

mod copying;
pub mod counters;
mod forwarder;
mod held;
pub mod limit;
pub mod model;
pub mod relay;
pub mod segment;
pub mod store;
