//! clearstream-control.
