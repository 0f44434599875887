//! The ranks' program: beside this one, in the package's folder of libraries, or in the PATH.

use std::{
    env,
    path::{Path, PathBuf},
};

use clearstream_schema::control::{Failure, FailureKind};

use crate::launcher::Kind;
use crate::{failure, libraries};

const NAME: &str = "clearstream-mpi";

/// Names in the order of preference: an MPI library loads programs that were
/// built for it only, so the library may be part of the name.
fn names(kind: Kind) -> Vec<String> {
    let library = match kind {
        Kind::OpenMpi => Some("openmpi"),
        Kind::Hydra => Some("mpich"),
        Kind::Slurm | Kind::Other => None,
    };
    library.map(|library| format!("{NAME}.{library}")).into_iter().chain([NAME.to_owned()]).collect()
}

/// Finds the program; `own` is the path of this one.
pub(crate) fn find(requested: Option<&str>, own: &Path, kind: Kind) -> Result<PathBuf, Failure> {
    if let Some(path) = requested {
        // Both hosts take the same path, from whatever folder ssh starts in.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
        return if path.is_file() {
            Ok(path)
        } else {
            Err(missing(own, &format!("there is no program {}", path.display())))
        };
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = env::split_paths(&path).collect();
    let in_path = |name: &String| {
        folders.iter().map(|folder| folder.join(name)).find(|path| path.is_absolute() && path.is_file())
    };
    let names = names(kind);
    names
        .iter()
        .find_map(|name| libraries::find(own, name))
        .or_else(|| names.iter().find_map(in_path))
        .ok_or_else(|| {
            missing(own, &format!("{NAME} is neither in {} nor in the PATH", libraries::places(own)))
        })
}

fn missing(own: &Path, what: &str) -> Failure {
    failure(
        FailureKind::Unsupported,
        format!(
            "{what}: build it for the MPI library of this host with {} (needs mpicc: \
             apt-get install libopenmpi-dev or libmpich-dev), or name it with --mpi-program PATH",
            libraries::build_with_mpi(own)
        ),
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_program_of_the_library_is_preferred() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("clearstream");
        fs::write(folder.path().join(NAME), "").unwrap();
        assert_eq!(find(None, &own, Kind::Hydra).unwrap(), folder.path().join(NAME));
        let mpich = folder.path().join("clearstream-mpi.mpich");
        fs::write(&mpich, "").unwrap();
        assert_eq!(find(None, &own, Kind::Hydra).unwrap(), mpich);
        assert_eq!(find(None, &own, Kind::OpenMpi).unwrap(), folder.path().join(NAME));
        let wrong = folder.path().join("none");
        let refused = find(wrong.to_str(), &own, Kind::Hydra).unwrap_err();
        assert!(
            refused.kind == FailureKind::Unsupported && refused.message.contains("make extras"),
            "{refused}"
        );
    }
}
