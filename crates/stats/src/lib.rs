//! clearstream-stats.
