//! timestamp.
