//! Collective operations with serialised values.

use clearstream_ranks::{RankError, World};
use serde::{Serialize, de::DeserializeOwned};

fn bytes(value: &impl Serialize) -> Vec<u8> {
    clearstream_schema::json::to_vec(value).unwrap_or_default()
}

fn value<T: DeserializeOwned>(rank: usize, host: &str, bytes: &[u8]) -> Result<T, RankError> {
    clearstream_schema::json::from_slice(bytes).map_err(|error| {
        let message = format!("message of another program or version: {error}");
        RankError::Library { rank, host: host.to_owned(), message }
    })
}

/// The value of rank 0 at every rank.
pub(crate) fn share<T: Serialize + DeserializeOwned>(
    world: &mut dyn World,
    own: Option<&T>,
) -> Result<T, RankError> {
    let all = world.broadcast(own.map(bytes).unwrap_or_default())?;
    value(0, world.host(), &all)
}

/// Every rank's value at rank 0, in the order of ranks; nothing at the others.
pub(crate) fn gather<T: Serialize + DeserializeOwned>(
    world: &mut dyn World,
    own: &T,
) -> Result<Vec<T>, RankError> {
    let all = world.gather(bytes(own))?;
    all.iter().enumerate().map(|(rank, bytes)| value(rank, world.host(), bytes)).collect()
}
