//! perf.
