//! clearstream-probe.
