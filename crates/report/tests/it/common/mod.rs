//! What the tests of this crate share.

pub(crate) mod chromium;
pub(crate) mod hosts;
pub(crate) mod improvement;
pub(crate) mod run;
