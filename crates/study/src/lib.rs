//! clearstream-study.
