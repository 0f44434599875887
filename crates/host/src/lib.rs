//! clearstream-host.
