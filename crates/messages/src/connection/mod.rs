//! Data connections over TCP: the server admits the connection that opens with
//! the test's cookie and closes all others. Other workloads use them too.

mod accept;
mod preamble;
mod socket;

pub use accept::{Listener, connect};
pub use preamble::Secret;
pub(crate) use socket::capped;
pub use socket::{SocketOptions, settle};
