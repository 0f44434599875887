//! MPI over iWARP: what a launcher needs so that an MPI library takes this project's provider of libfabric
//! (`extras/libfabric`), and the proof that it did.

use std::path::{Path, PathBuf};

use clearstream_schema::control::{Failure, FailureKind};

use crate::launcher::Kind;
use crate::libraries;

/// The provider's file: libfabric loads what ends so.
const LIBRARY: &str = "libclearstream-fi.so";
/// The provider's name.
const PROVIDER: &str = "clearstream";

/// Finds the library; both hosts take the same path.
pub(crate) fn find_library(own: &Path) -> Result<PathBuf, Failure> {
    libraries::find(own, LIBRARY).ok_or_else(|| {
        let places = libraries::places(own);
        unsupported(format!(
            "{LIBRARY} is found neither in {places}: install the package, or build it with `make libraries`"
        ))
    })
}

/// Options of `mpirun` that make the ranks use it.
pub(crate) fn options(kind: Kind, library: &Path) -> Result<Vec<String>, Failure> {
    let folder = library.parent().unwrap_or(Path::new("/")).to_string_lossy();
    let variables =
        [("FI_PROVIDER_PATH", folder.as_ref()), ("FI_PROVIDER", PROVIDER), ("CLEARSTREAM_FABRIC_TRACE", "1")];
    // The last is Open MPI 5's, which takes other providers otherwise.
    let parameters = [
        ("pml", "cm"),
        ("mtl", "ofi"),
        ("mtl_ofi_provider_include", PROVIDER),
        ("opal_common_ofi_provider_include", PROVIDER),
    ];
    let of_mpich = [("MPIR_CVAR_CH4_NETMOD", "ofi"), ("MPIR_CVAR_NOLOCAL", "1")];
    match kind {
        Kind::OpenMpi => {
            let parameters =
                parameters.map(|(name, value)| ["--mca".to_owned(), name.to_owned(), value.to_owned()]);
            let exports = variables.map(|(name, value)| ["-x".to_owned(), format!("{name}={value}")]);
            Ok(parameters.into_iter().flatten().chain(exports.into_iter().flatten()).collect())
        }
        Kind::Hydra => {
            let all = variables.into_iter().chain(of_mpich);
            Ok(all.flat_map(|(name, value)| ["-genv".to_owned(), name.to_owned(), value.to_owned()]).collect())
        }
        Kind::Slurm => {
            let of_ranks = variables.into_iter().chain(of_mpich).map(|(name, value)| format!("{name}={value}"));
            let of_open_mpi = parameters.map(|(name, value)| format!("OMPI_MCA_{name}={value}"));
            let all: Vec<String> = ["ALL".to_owned()].into_iter().chain(of_ranks).chain(of_open_mpi).collect();
            Ok(vec![format!("--export={}", all.join(","))])
        }
        Kind::Other => Err(unsupported(
            "the options of this launcher are unknown: set FI_PROVIDER_PATH and FI_PROVIDER for the ranks, and \
             choose the transport mpi"
                .to_owned(),
        )),
    }
}

/// Connections that a rank reports in a line of its standard error.
pub fn connection_count(line: &str) -> Option<u64> {
    let (_, after) = line.split_once("connections by RDMA: ")?;
    after.split(',').next()?.parse().ok()
}

/// Why a job without any is refused.
pub(crate) fn no_connection() -> Failure {
    unsupported(
        "the MPI library moved the messages without RDMA: it needs libfabric (Open MPI: apt-get install libfabric1; \
         Debian's MPICH 4.0 is built for UCX, which takes no iWARP)"
            .to_owned(),
    )
}

fn unsupported(message: String) -> Failure {
    Failure::new(FailureKind::Unsupported, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_read_from_the_lines_of_the_library() {
        // As printed by a rank.
        let line =
            "clearstream-fabric: connections by RDMA: 1, 10.0.0.1:36125 with 10.0.0.2:40011, process 812";
        assert_eq!(connection_count(line), Some(1));
        assert_eq!(connection_count("clearstream-fabric: 10.0.0.1 to 10.0.0.2"), None);
    }

    #[test]
    fn a_launcher_gets_options_of_its_own() {
        let library = Path::new("/opt/lib/libclearstream-fi.so");
        let open_mpi = options(Kind::OpenMpi, library).unwrap().join(" ");
        assert!(open_mpi.starts_with("--mca pml cm --mca mtl ofi"), "{open_mpi}");
        assert!(open_mpi.contains("-x FI_PROVIDER_PATH=/opt/lib -x FI_PROVIDER=clearstream"), "{open_mpi}");
        let hydra = options(Kind::Hydra, library).unwrap().join(" ");
        assert!(hydra.starts_with("-genv FI_PROVIDER_PATH /opt/lib"), "{hydra}");
        assert_eq!(options(Kind::Other, library).unwrap_err().kind, FailureKind::Unsupported);
    }
}
