//! clearstream-record.
