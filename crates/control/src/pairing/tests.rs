//! Tokens and files.
