//! MPI libraries, and the ranks' program built for each.

use std::{
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

use serde_json::Value;

use crate::common::{assert_valid, link_provider, run};

/// An MPI library: its launcher, and the ranks' program built with its compiler.
pub(crate) struct Library {
    pub(crate) name: &'static str,
    pub(crate) mpirun: String,
    pub(crate) program: PathBuf,
}

impl Library {
    /// Builds the ranks' program as a user does (`extras/mpi/build`).
    fn new(name: &'static str, mpirun: &str, compiler: &str) -> Self {
        // Each test has a name for it of its own, to find its processes by. A colon would end the folder in a PATH.
        let test = std::thread::current().name().unwrap().replace("::", ".");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mpi").join(test);
        fs::create_dir_all(&folder).unwrap();
        let program = folder.join(format!("clearstream-mpi.{name}"));
        let _ = fs::remove_file(&program);
        fs::hard_link(built(name, compiler, &program), &program).unwrap();
        Self { name, mpirun: mpirun.to_owned(), program }
    }

    /// Options that choose it.
    pub(crate) fn options(&self) -> [&str; 6] {
        let program = self.program.to_str().unwrap();
        ["--transport", "mpi", "--mpirun", &self.mpirun, "--mpi-program", program]
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
        // One that has ended and is not waited for yet has no command line.
        let runs = |id: &u32| {
            let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            line.starts_with(self.program.as_os_str().as_encoded_bytes())
        };
        ids.filter(runs).collect()
    }
}

/// The program of these sources, by the first test that wants it. `beside` is a file of this test alone.
fn built(name: &str, compiler: &str, beside: &Path) -> PathBuf {
    let extras = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../extras/mpi");
    let mut sources: Vec<PathBuf> =
        fs::read_dir(extras.join("src")).unwrap().map(|entry| entry.unwrap().path()).collect();
    sources.push(extras.join("build"));
    sources.sort();
    let mut hasher = DefaultHasher::new();
    compiler.hash(&mut hasher);
    sources.iter().for_each(|path| fs::read(path).unwrap().hash(&mut hasher));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mpi-built");
    fs::create_dir_all(&folder).unwrap();
    let program = folder.join(format!("{name}.{:016x}", hasher.finish()));
    if !program.exists() {
        let whole = beside.with_extension("building");
        let output = Command::new(extras.join("build")).arg(compiler).arg(&whole).output().unwrap();
        assert!(
            output.status.success(),
            "{compiler}: apt-get install libopenmpi-dev openmpi-bin libmpich-dev mpich (.ci/install test): {}",
            String::from_utf8_lossy(&output.stderr)
        );
        fs::rename(&whole, &program).unwrap();
    }
    program
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
