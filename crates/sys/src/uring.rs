//! uring.
