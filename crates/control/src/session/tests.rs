//! Faults played with virtual time.
