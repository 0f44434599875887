//! socket.
