//! `clearstream cc`
//!
//! Loading needs a library for BPF and a program compiled by clang, which this
//! command does not carry: that is `clearstream-bpf` (extras/bpf), found
//! beside this program, in the package's folder of libraries, or in the PATH.

use std::{process, time::Duration};

use clap::Subcommand;
use clearstream_host::{HostRoot, ReadError};
use clearstream_mpirun::libraries;
use clearstream_schema::{
    ExitCode, JsonSchema,
    congestion::{CongestionControls, LOADABLE, Loadable, PIN_DIRECTORY},
    control::FailureKind,
    failure::Classified,
};
use clearstream_sys::program::{Program, ProgramError};
use serde::Serialize;

use crate::{
    endpoints::own_program,
    exit::CommandError,
    output::{self, Output},
};

const LOADER: &str = "clearstream-bpf";
/// Time for loading: the kernel's verifier takes well under a second.
const LOADER_TIMEOUT: Duration = Duration::from_secs(60);
const AVAILABLE: &str = "proc/sys/net/ipv4/tcp_available_congestion_control";
const DEFAULT: &str = "proc/sys/net/ipv4/tcp_congestion_control";
const RELEASE: &str = "proc/sys/kernel/osrelease";
/// Names that Linux's own algorithms are registered under (net/ipv4/tcp_*.c).
const OF_LINUX: [&str; 18] = [
    "bbr",
    "bic",
    "cdg",
    "cubic",
    "dctcp",
    "dctcp-reno",
    "highspeed",
    "htcp",
    "hybla",
    "illinois",
    "lp",
    "nv",
    "reno",
    "scalable",
    "vegas",
    "veno",
    "westwood",
    "yeah",
];

/// List, load and unload congestion controls of this host.
#[derive(Debug, Subcommand)]
pub enum CcVerb {
    /// List registered congestion controls, their owners, and those that can be loaded
    List,
    /// Load one as a BPF program; it stays until `unload` or the next boot, and
    /// the default is not changed
    Load {
        /// Algorithm: htcp, registered as bpf_htcp
        algorithm: String,
    },
    /// Unregister what `load` registered; existing connections keep using it
    Unload {
        /// Algorithm: htcp
        algorithm: String,
    },
}

/// Why a congestion control was not listed, loaded or unloaded.
#[derive(Debug, thiserror::Error)]
pub enum CcError {
    /// Not one of ours.
    #[error("there is no congestion control {algorithm} to load; there is {}", loadable().join(", "))]
    Unknown {
        /// As typed.
        algorithm: String,
    },
    /// The kernel's list.
    #[error("cannot list congestion controls: {0}")]
    Read(#[from] ReadError),
    /// The program that loads is not installed.
    #[error(
        "{LOADER} is neither in {places} nor in the PATH: install the package, or build it with `make extras` \
         (needs clang, libelf-dev and pkg-config)"
    )]
    NoLoader {
        /// Folders in which it was searched.
        places: String,
    },
    /// The program that loads does not start or end.
    #[error(transparent)]
    Start(ProgramError),
    /// The loader failed.
    #[error("{message}")]
    Loader {
        /// Last line of its standard error.
        message: String,
        /// Its exit code, one of ours; none when a signal ended it.
        code: Option<i32>,
    },
}

impl Classified for CcError {
    fn failure_kind(&self) -> FailureKind {
        match self {
            Self::Unknown { .. } => FailureKind::Name,
            Self::Read(_) => FailureKind::File,
            Self::NoLoader { .. } | Self::Start(_) => FailureKind::Unsupported,
            // The loader's codes are those of this program; killed, or a code that is none of ours, it is a program of this
            // host that fails.
            Self::Loader { code, .. } => code
                .and_then(ExitCode::of_number)
                .and_then(ExitCode::failure_kind)
                .unwrap_or(FailureKind::Unsupported),
        }
    }
}

/// What `cc load` or `cc unload` did.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CcChange<'a> {
    /// Name of the algorithm, as requested.
    algorithm: &'a str,
    /// For `--congestion-control`.
    name: &'a str,
    /// The kernel was changed.
    changed: bool,
    /// What was done, or why nothing was.
    message: &'a str,
}

impl CcVerb {
    /// Runs it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        let root = HostRoot::live();
        match self {
            Self::List => {
                let controls = list(&root)?;
                out.result(&controls, || table(&controls))?;
            }
            Self::Load { algorithm } => {
                let control = find(&algorithm)?;
                match offered(&root, control)? {
                    Some(Offer { name, message }) => report(&algorithm, name, false, &message, out)?,
                    None => {
                        call_loader("load", &algorithm)?;
                        let name = control.name;
                        let message = format!(
                            "loaded {name}; use it with --congestion-control {name}, \
                             unload it with clearstream cc unload {algorithm}"
                        );
                        report(&algorithm, name, true, &message, out)?;
                    }
                }
            }
            Self::Unload { algorithm } => {
                let name = find(&algorithm)?.name;
                call_loader("unload", &algorithm)?;
                let message = format!("unloaded {name}; connections that use it keep it until they close");
                report(&algorithm, name, true, &message, out)?;
            }
        }
        Ok(())
    }
}

fn report(
    algorithm: &str,
    name: &str,
    changed: bool,
    message: &str,
    out: &Output,
) -> Result<(), CommandError> {
    let document = CcChange { algorithm, name, changed, message };
    Ok(out.result(&document, || message.to_owned())?)
}

fn loadable() -> Vec<String> {
    LOADABLE.iter().map(|control| control.algorithm.to_owned()).collect()
}

fn find(algorithm: &str) -> Result<&'static Loadable, CcError> {
    LOADABLE
        .iter()
        .find(|control| control.algorithm == algorithm)
        .ok_or_else(|| CcError::Unknown { algorithm: algorithm.to_owned() })
}

/// The registered ones, and who registered them.
fn list(root: &HostRoot) -> Result<CongestionControls, CcError> {
    let registered = root.read(AVAILABLE)?;
    // An error: nothing is pinned, or its folder is not readable.
    let pins = root.list(PIN_DIRECTORY).unwrap_or_default();
    let (loaded, kernel) =
        registered.split_whitespace().map(str::to_owned).partition(|name| pins.contains(name));
    Ok(CongestionControls {
        default: root.read(DEFAULT)?.trim().to_owned(),
        kernel,
        loaded,
        loadable: loadable(),
    })
}

/// A reason to load nothing.
struct Offer {
    name: &'static str,
    message: String,
}

/// Whether the algorithm is there already: the kernel's own is the better one,
/// it needs no loader and survives a reboot.
fn offered(root: &HostRoot, control: &'static Loadable) -> Result<Option<Offer>, CcError> {
    let Loadable { algorithm, name } = *control;
    let registered = root.read(AVAILABLE)?;
    let is_registered = |wanted: &str| registered.split_whitespace().any(|name| name == wanted);
    let offer = |name, message| Some(Offer { name, message });
    if is_registered(algorithm) {
        let message = format!(
            "the kernel offers {algorithm} itself: nothing loaded, use --congestion-control {algorithm}"
        );
        return Ok(offer(algorithm, message));
    }
    if is_registered(name) {
        return Ok(offer(name, format!("{name} is loaded already: use --congestion-control {name}")));
    }
    let release = root.read(RELEASE).unwrap_or_default();
    let index = root.read(&format!("lib/modules/{}/modules.dep", release.trim())).unwrap_or_default();
    if index.contains(&format!("/tcp_{algorithm}.ko")) {
        let message = format!(
            "the kernel has {algorithm} as a module: nothing loaded, run modprobe tcp_{algorithm} \
             and use --congestion-control {algorithm}"
        );
        return Ok(offer(algorithm, message));
    }
    Ok(None)
}

/// Runs the program that loads; its one line is the message.
fn call_loader(action: &str, algorithm: &str) -> Result<(), CommandError> {
    let own = own_program()?;
    let program = libraries::find(&own, LOADER).unwrap_or_else(|| LOADER.into());
    let run = Program::new(program).args([action, algorithm]).within(LOADER_TIMEOUT).finishes().run();
    let process::Output { status, stderr, .. } = run.map_err(|error| match error.is_missing() {
        true => CcError::NoLoader { places: libraries::places(&own) },
        false => CcError::Start(error),
    })?;
    if status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&stderr);
    let message = match stderr.trim() {
        "" => format!("{LOADER} ended with {status}"),
        text => text.lines().last().unwrap_or(text).to_owned(),
    };
    Err(CcError::Loader { message, code: status.code() }.into())
}

fn table(controls: &CongestionControls) -> String {
    let row = |name: &String, owner: &str| {
        let note = if *name == controls.default { "default" } else { "" };
        vec![name.clone(), owner.to_owned(), note.to_owned()]
    };
    // Other owners are not known without the right to list BPF programs.
    let owner =
        |name: &str| if OF_LINUX.contains(&name) { "the kernel" } else { "another module or program" };
    let others = controls.kernel.iter().map(|name| row(name, owner(name)));
    let rows = others.chain(controls.loaded.iter().map(|name| row(name, "clearstream cc load")));
    let text = output::table::table(&["name", "registered by", ""], rows.collect());
    let rest: Vec<&str> = LOADABLE
        .iter()
        .filter(|control| !controls.loaded.iter().any(|name| name == control.name))
        .map(|control| control.algorithm)
        .collect();
    if rest.is_empty() { text } else { format!("{text}\n\nto load: {}", rest.join(", ")) }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    /// A host in a folder.
    fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, HostRoot) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        let root = HostRoot::directory(folder.path());
        (folder, root)
    }

    fn why_not(files: &[(&str, &str)]) -> Option<(&'static str, String)> {
        let (_folder, root) = host(files);
        offered(&root, &LOADABLE[0]).expect("a list").map(|offer| (offer.name, offer.message))
    }

    #[test]
    fn pinned_ones_are_distinguished_from_the_kernels() {
        let (_folder, root) = host(&[
            (AVAILABLE, "reno cubic bpf_htcp bpf_other\n"),
            (DEFAULT, "cubic\n"),
            ("sys/fs/bpf/clearstream/bpf_htcp", ""),
        ]);
        let controls = list(&root).expect("a list");
        assert_eq!(controls.kernel, ["reno", "cubic", "bpf_other"]);
        assert_eq!(controls.loaded, ["bpf_htcp"]);
        assert_eq!(controls.default, "cubic");
        let text = table(&controls);
        assert!(text.contains("default") && !text.contains("to load"), "{text}");
        let row = |name: &str| text.lines().find(|line| line.split_whitespace().next() == Some(name));
        for (name, owner) in [
            ("reno", "the kernel"),
            ("bpf_other", "another module or program"),
            ("bpf_htcp", "clearstream cc load"),
        ] {
            assert!(row(name).is_some_and(|line| line.contains(owner)), "{name}, {owner}: {text}");
        }
    }

    #[test]
    fn nothing_is_loaded_where_the_kernel_has_its_own() {
        assert_eq!(why_not(&[(AVAILABLE, "reno cubic\n")]), None);
        let (name, message) = why_not(&[(AVAILABLE, "reno cubic htcp\n")]).expect("a reason");
        assert_eq!(name, "htcp");
        assert!(message.contains("itself") && message.contains("nothing loaded"), "{message}");
        let (name, _) = why_not(&[(AVAILABLE, "reno bpf_htcp\n")]).expect("a reason");
        assert_eq!(name, "bpf_htcp");
        let (name, message) = why_not(&[
            (AVAILABLE, "reno cubic\n"),
            (RELEASE, "6.1.0-13-amd64\n"),
            ("lib/modules/6.1.0-13-amd64/modules.dep", "kernel/net/ipv4/tcp_htcp.ko:\n"),
        ])
        .expect("a reason");
        assert_eq!(name, "htcp");
        assert!(message.contains("modprobe tcp_htcp"), "{message}");
    }

    #[test]
    fn the_loaders_exit_code_is_kept() {
        let code = |code| {
            let error = CcError::Loader { message: String::new(), code };
            ExitCode::from(error.failure_kind())
        };
        assert_eq!(code(Some(5)), ExitCode::Unsupported);
        assert_eq!(code(Some(9)), ExitCode::Name);
        // Killed, or a code that is none of ours.
        assert_eq!(code(None), ExitCode::Unsupported);
        assert_eq!(code(Some(101)), ExitCode::Unsupported);
    }
}
