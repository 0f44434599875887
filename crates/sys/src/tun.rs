//! tun.
