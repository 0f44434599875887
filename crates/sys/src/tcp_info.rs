//! tcp_info.
