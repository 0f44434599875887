//! Paired hosts, strangers and queues on loopback.
