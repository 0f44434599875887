//! Evidence to findings: what limits a path.
#![forbid(unsafe_code)]
