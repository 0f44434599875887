//! clearstream-netlink.
