//! What the tests of this crate share.

pub(crate) mod compare;
pub(crate) mod daemons;
pub(crate) mod plans;
pub(crate) mod private;
