//! clearstream-lab.
