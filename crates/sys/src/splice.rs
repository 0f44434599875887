//! splice.
