//! MPI libraries, and the ranks' library built for each.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use serde_json::Value;

use crate::common::{assert_valid, build_mpi_library, link_provider, program, run};

/// An MPI library: its launcher, and the ranks' library built with its compiler.
pub(crate) struct Library {
    pub(crate) name: &'static str,
    pub(crate) mpirun: String,
    pub(crate) compiler: String,
    pub(crate) library: PathBuf,
}

impl Library {
    /// Builds the ranks' library as a user does (`extras/mpi/library/build`).
    fn new(name: &'static str, mpirun: &str, compiler: &str) -> Self {
        // Each test has a name for it of its own, to find its processes by.
        let test = std::thread::current().name().unwrap().replace("::", ".");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mpi").join(test);
        fs::create_dir_all(&folder).unwrap();
        let library = folder.join(format!("libclearstream_mpi.{name}.so"));
        build_mpi_library(compiler, &library);
        Self { name, mpirun: mpirun.to_owned(), compiler: compiler.to_owned(), library }
    }

    pub(crate) fn path(&self) -> &str {
        self.library.to_str().unwrap()
    }

    /// Options that choose it.
    pub(crate) fn options(&self) -> [&str; 6] {
        ["--transport", "mpi", "--mpirun", &self.mpirun, "--mpi-library", self.path()]
    }

    /// A measurement with further options.
    pub(crate) fn measure(&self, options: &[&str]) -> Value {
        let document = run(&self.arguments(options)).json();
        assert_valid("message", &document);
        assert_eq!(document["complete"], true, "{}", self.name);
        document
    }

    pub(crate) fn arguments<'a>(&'a self, options: &[&'a str]) -> Vec<&'a str> {
        let mut arguments = vec!["message", "-O", "1ms", "--json"];
        arguments.extend(self.options());
        arguments.extend(options);
        arguments
    }

    /// Processes of its ranks that run.
    pub(crate) fn ranks(&self) -> Vec<u32> {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let is_rank = |id: &u32| {
            // One that has ended and is not waited for yet has no command line.
            let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            let fields: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
            let own = program().as_os_str().as_encoded_bytes();
            fields.starts_with(&[own, b"rank"]) && fields.contains(&self.path().as_bytes())
        };
        ids.filter(is_rank).collect()
    }
}

static LIBRARIES: LazyLock<[Library; 2]> = LazyLock::new(|| {
    [
        Library::new("openmpi", "mpirun.openmpi", "mpicc.openmpi"),
        Library::new("mpich", "mpirun.mpich", "mpicc.mpich"),
    ]
});

pub(crate) fn libraries() -> &'static [Library] {
    link_provider();
    LIBRARIES.as_slice()
}

/// The current ones, out of wheels, unless `.ci/install` could not get them: `.ci/test` reports that.
pub(crate) fn wheels() -> Vec<Library> {
    link_provider();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/mpi");
    if folder.join("unavailable").exists() {
        return Vec::new();
    }
    let found = |name, wheel: &str| {
        let bin = folder.join(wheel).join("bin").canonicalize().expect(".ci/install test");
        let program = |program: &str| bin.join(program).to_str().unwrap().to_owned();
        Library::new(name, &program("mpirun"), &program("mpicc"))
    };
    vec![found("openmpi5", "openmpi"), found("mpich5", "mpich")]
}
