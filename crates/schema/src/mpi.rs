//! Jobs of MPI ranks, as results name them.

use crate::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bytes that the network interfaces of each side sent, without loopback: headers, acknowledgements
/// and everybody's traffic included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InterfaceBytes {
    /// By the client's interfaces.
    pub client_sent_bytes: u64,
    /// By the server's interfaces.
    pub server_sent_bytes: u64,
}

/// An MPI job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MpiJob {
    /// Version string of the MPI library, as `MPI_Get_library_version` returns it.
    pub library: String,
    /// Version of the MPI standard that the library follows.
    pub standard: String,
    /// Command line that started it.
    pub command: Vec<String>,
    /// Its ranks: 0 is the client, 1 the server.
    pub ranks: Vec<MpiRank>,
}

impl MpiJob {
    /// The library, and where its ranks ran.
    pub fn text(&self) -> String {
        // Open MPI adds where and when it was built.
        let library = self.library.split(", package").next().unwrap_or(&self.library);
        let ranks: Vec<String> =
            self.ranks.iter().map(|rank| format!("rank {} on {}", rank.rank, rank.host)).collect();
        format!("{library}: {}", ranks.join(", "))
    }
}

/// A rank of an MPI job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MpiRank {
    /// Its number.
    pub rank: u32,
    /// Name of its host, as the rank read it there.
    pub host: String,
    /// Process ID on that host.
    pub process: u32,
}
