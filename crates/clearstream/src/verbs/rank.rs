//! `clearstream rank`, which `mpirun` starts (`clearstream_mpirun::rank_arguments`): one of two ranks that measure a
//! workload over MPI by themselves.

use std::path::PathBuf;

use clearstream_messages::{Say, message, overlap};
use clearstream_mpirun::Line;
use clearstream_schema::{control::Failure, failure::Classified};
use clearstream_sys::mpi::MpiProcess;
use clearstream_workload::TrialError;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    exit::CommandError,
    interrupt, mpi,
    output::{self, Output, Unwritten},
};

/// Be one of two ranks that measure.
#[derive(Debug, clap::Args)]
pub struct RankArgs {
    /// By this a process is known to be a rank of a launcher
    #[arg(long, required = true)]
    mpi: bool,
    /// Library of the ranks
    #[arg(long, value_name = "FILE")]
    mpi_library: Option<PathBuf>,
    /// What is measured
    #[arg(value_parser = ["message", "overlap"])]
    workload: String,
    /// Its configuration, a JSON document
    config: String,
}

impl RankArgs {
    /// Measures; rank 0 prints its lines ([`Line`]).
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        out.without_document("a rank")?;
        // The parent of a launcher may ignore signals that are to end a rank.
        interrupt::end_at_once()?;
        match self.workload.as_str() {
            "message" => self.measure(message::rank),
            _ => self.measure(overlap::rank),
        }
    }

    fn measure<C: DeserializeOwned, P: Serialize + DeserializeOwned>(
        &self,
        rank: fn(&MpiProcess, &C, Say<'_, P>) -> Result<(), Failure>,
    ) -> Result<(), CommandError> {
        let config = clearstream_schema::json::from_str(&self.config).map_err(TrialError::from)?;
        let process = mpi::join_alone(self.mpi_library.as_deref()).map_err(CommandError::from)?;
        let say = &mut |line: &Line<P>| {
            let text = clearstream_schema::json::to_string(line).map_err(Unwritten::from);
            text.and_then(|text| output::as_it_is(&text)).map_err(|error| error.to_failure())
        };
        match rank(&process, &config, say) {
            Ok(()) => {
                let (rank, host) = (process.rank(), process.host().to_owned());
                let failed = |message| clearstream_ranks::RankError::Library { rank, host, message };
                Ok(process.finish().map_err(failed).map_err(CommandError::from)?)
            }
            Err(failure) => {
                // MPI_Abort does not return: all is said before.
                let (rank, host) = (process.rank(), process.host());
                output::log(&format!("clearstream: rank {rank} on {host}: {}", failure.message));
                output::flush();
                let error = CommandError::from(TrialError::from(failure));
                process.abort((error.exit_code() as u8).into());
                Err(error)
            }
        }
    }
}
