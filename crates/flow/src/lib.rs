//! clearstream-flow.
