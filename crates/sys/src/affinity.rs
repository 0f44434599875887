//! affinity.
