//! What rank 0 decides for all, and failures of any rank.

use clearstream_ranks::World;
use clearstream_schema::control::{Failure, FailureKind};
use serde::{Deserialize, Serialize};

use super::MetadataError;
use crate::collective::{gather, share};

/// How a step went, of rank 0 for all.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Next<T> {
    Go(T),
    /// The run has to end.
    Over,
    /// A rank failed.
    Failed(Failure),
    Invalid(String),
}

impl<T> Next<T> {
    /// Of a result at rank 0.
    pub(super) fn of(result: Result<T, MetadataError>) -> Self {
        match result {
            Ok(value) => Self::Go(value),
            Err(MetadataError::Invalid(message)) => Self::Invalid(message),
            Err(MetadataError::File(failure)) => Self::Failed(failure),
            Err(error) => Self::Failed(Failure { kind: FailureKind::File, message: error.to_string() }),
        }
    }

    /// The value, none at the end of the run.
    pub(super) fn value(self) -> Result<Option<T>, MetadataError> {
        match self {
            Self::Go(value) => Ok(Some(value)),
            Self::Over => Ok(None),
            Self::Failed(failure) => Err(MetadataError::File(failure)),
            Self::Invalid(message) => Err(MetadataError::Invalid(message)),
        }
    }
}

/// The first failure, with its rank where there are several.
pub(super) fn agreed(failures: &[Option<Failure>]) -> Next<()> {
    let first = failures.iter().enumerate().find_map(|(rank, failure)| Some((rank, failure.as_ref()?)));
    first.map_or(Next::Go(()), |(rank, failure)| {
        let is_one = failures.len() == 1;
        let message = if is_one { failure.message.clone() } else { format!("rank {rank}: {failure}") };
        Next::Failed(Failure { message, ..failure.clone() })
    })
}

/// Ends with the first failure of any rank, at every rank.
pub(super) fn agreement(world: &mut dyn World, failure: Option<Failure>) -> Result<(), MetadataError> {
    let all = gather(world, &failure)?;
    let next = (world.rank() == 0).then(|| agreed(&all));
    share(world, next.as_ref())?.value().map(|_| ())
}
