//! Collective operations with serialised values.

use clearstream_ranks::{RankError, World};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::MetadataError;

fn bytes(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

fn value<T: DeserializeOwned>(rank: usize, host: &str, bytes: &[u8]) -> Result<T, MetadataError> {
    serde_json::from_slice(bytes).map_err(|error| {
        let message = format!("message of another program or version: {error}");
        RankError::Library { rank, host: host.to_owned(), message }.into()
    })
}

/// The value of rank 0 at every rank.
pub(super) fn share<T: Serialize + DeserializeOwned>(
    world: &mut dyn World,
    own: Option<&T>,
) -> Result<T, MetadataError> {
    let all = world.broadcast(own.map(bytes).unwrap_or_default())?;
    value(0, world.host(), &all)
}

/// Every rank's value at rank 0, in the order of ranks; nothing at the others.
pub(super) fn gather<T: Serialize + DeserializeOwned>(
    world: &mut dyn World,
    own: &T,
) -> Result<Vec<T>, MetadataError> {
    let all = world.gather(bytes(own))?;
    all.iter().enumerate().map(|(rank, bytes)| value(rank, world.host(), bytes)).collect()
}

/// How a step went, of rank 0 for all.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Next<T> {
    Go(T),
    /// The run has to end.
    Over,
    /// A rank failed.
    Failed(String),
    Invalid(String),
}

impl<T> Next<T> {
    /// Of a result at rank 0.
    pub(super) fn of(result: Result<T, MetadataError>) -> Self {
        match result {
            Ok(value) => Self::Go(value),
            Err(MetadataError::Invalid(message)) => Self::Invalid(message),
            Err(error) => Self::Failed(error.to_string()),
        }
    }

    /// The value, none at the end of the run.
    pub(super) fn value(self) -> Result<Option<T>, MetadataError> {
        match self {
            Self::Go(value) => Ok(Some(value)),
            Self::Over => Ok(None),
            Self::Failed(message) => Err(MetadataError::File(message)),
            Self::Invalid(message) => Err(MetadataError::Invalid(message)),
        }
    }
}

/// The first failure, with its rank where there are several.
pub(super) fn agreed(failures: &[Option<String>]) -> Next<()> {
    let first = failures.iter().enumerate().find_map(|(rank, failure)| Some((rank, failure.as_ref()?)));
    first.map_or(Next::Go(()), |(rank, failure)| {
        Next::Failed(if failures.len() > 1 { format!("rank {rank}: {failure}") } else { failure.clone() })
    })
}

/// Ends with the first failure of any rank, at every rank.
pub(super) fn agreement(world: &mut dyn World, failure: Option<String>) -> Result<(), MetadataError> {
    let all = gather(world, &failure)?;
    let next = (world.rank() == 0).then(|| agreed(&all));
    share(world, next.as_ref())?.value().map(|_| ())
}
