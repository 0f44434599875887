//! clearstream-report.
