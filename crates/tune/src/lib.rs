//! Rules for sysctls, links and NICs: lint and recommend.
#![forbid(unsafe_code)]
