//! `clearstream rdma run`: a verbs program over software iWARP, without an RDMA
//! card.
//!
//! The library `libclearstream_verbs.so` (extras/verbs) is preloaded. Programs that the loader does not preload into
//! are rejected with the reason. With `--sockets` librspreload comes before it:
//! that library replaces the socket calls of a program by rsocket's, and what
//! rsocket rejects reaches the socket calls of ours, which note it.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    io::{self, Read},
    net::IpAddr,
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::Command,
};

use clap::ValueEnum;
use clearstream_mpirun::libraries;
use clearstream_schema::{control::FailureKind, failure::Classified, notice::Notice};
use clearstream_sys::document;

use super::spreload::{Outlook, outlook};
use crate::{
    endpoints::own_program,
    exit::CommandError,
    output::{Output, flush},
};

const LIBRARY: &str = "libclearstream_verbs.so";
const SOCKETS_LIBRARY: &str = "librspreload.so";
/// Folders of libraries; packages put librspreload below `rsocket`.
const LIBRARY_FOLDERS: [&str; 5] = ["/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/local/lib64", "/lib"];
/// Bits of set-uid and set-gid.
const SET_ID: u32 = 0o6000;
/// First bytes of an ELF file: magic number, 64 bits.
const ELF: [u8; 4] = *b"\x7fELF";
const BITS_64: u8 = 2;
/// Type of the program header that names the loader (elf(5)).
const PT_INTERP: u32 = 3;

/// Run a verbs program over software iWARP.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Address that the device reports as its GID (default: the first of this host)
    #[arg(long, value_name = "ADDRESS")]
    device_address: Option<IpAddr>,
    /// Name of the device
    #[arg(long, value_name = "NAME", default_value = "clearstream0")]
    device_name: String,
    /// Which thread moves the bytes
    #[arg(long, value_enum, value_name = "MODE", default_value_t)]
    progress: ProgressMode,
    /// How memory is reached that the program has registered and may take away
    #[arg(long, value_enum, value_name = "WAY", default_value_t)]
    memory: MemoryWay,
    /// Request a checksum (CRC32C) of every frame
    #[arg(long)]
    crc: bool,
    /// Report each connection at exit: peer, operations, bytes, and which thread moved them
    #[arg(long)]
    statistics: bool,
    /// Report each connection when it ends: peer, operations, bytes, path
    #[arg(long)]
    trace: bool,
    /// Run a sockets program: its TCP connections go by RDMA where rsocket can; report those that do not
    #[arg(long)]
    sockets: bool,
    /// Program with its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Which thread moves the bytes.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum ProgressMode {
    /// The thread that polls; a helper when none polls
    #[default]
    Adaptive,
    /// Threads that poll or wait
    Inline,
    /// An engine thread
    Offloaded,
}

/// How registered memory is reached.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum MemoryWay {
    /// By its pages, which the kernel holds as for a card
    #[default]
    Held,
    /// By its address: what is gone is an error
    Checked,
    /// As memory that is there until it is deregistered
    Trusted,
}

/// Reasons for which a program is not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The library is not installed.
    #[error(
        "{LIBRARY} is found neither in {places}: install the package, or build it with `make libraries` and keep it \
         beside this program"
    )]
    NoLibrary {
        /// Searched folders.
        places: String,
    },
    /// librspreload is not installed.
    #[error(
        "{SOCKETS_LIBRARY} is in no folder of libraries ({}): install it (Debian: librdmacm1, Fedora: librdmacm)",
        LIBRARY_FOLDERS.join(", ")
    )]
    NoSockets,
    /// The program does not exist, or is no file.
    #[error("there is no program {}: write its path, or a name in PATH", program.display())]
    NoProgram {
        /// As typed.
        program: PathBuf,
    },
    /// Statically linked.
    #[error(
        "{} is statically linked: nothing can be preloaded into it; link it with the shared libraries \
         libibverbs and librdmacm",
        program.display()
    )]
    Static {
        /// Its path.
        program: PathBuf,
    },
    /// Set-uid or set-gid.
    #[error(
        "{} is set-uid or set-gid: the loader preloads nothing into it; run a copy without that bit",
        program.display()
    )]
    SetId {
        /// Its path.
        program: PathBuf,
    },
    /// A 32-bit program.
    #[error("{} is a 32-bit program: {LIBRARY} is for 64-bit programs", program.display())]
    Bits {
        /// Its path.
        program: PathBuf,
    },
    /// A program that librspreload breaks.
    #[error(
        "{} crashes at its start below librspreload, with any verbs library: name the program that it starts, or run it \
         without --sockets",
        program.display()
    )]
    Breaks {
        /// The program, or the interpreter of a script.
        program: PathBuf,
    },
    /// It cannot be read or started.
    #[error("cannot run {}: {source}", program.display())]
    Start {
        /// Its path.
        program: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
}

impl Classified for RunError {
    fn failure_kind(&self) -> FailureKind {
        match self {
            Self::NoProgram { .. } => FailureKind::Name,
            Self::NoLibrary { .. }
            | Self::NoSockets
            | Self::Static { .. }
            | Self::SetId { .. }
            | Self::Bits { .. }
            | Self::Breaks { .. } => FailureKind::Unsupported,
            Self::Start { .. } => FailureKind::File,
        }
    }
}

impl RunArgs {
    /// Replaces this process by the program.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        out.without_document("a program that is run")?;
        let library = library()?;
        let (name, arguments) =
            self.command.split_first().ok_or_else(|| CommandError::usage("name a program"))?;
        let program = find(name).ok_or_else(|| RunError::NoProgram { program: name.into() })?;
        check(&program)?;
        let mut command = Command::new(&program);
        let sockets = self.sockets.then(sockets_library).transpose()?;
        if let Some(librspreload) = &sockets {
            say_what_breaks(&program, librspreload, out)?;
        }
        // The library that is first is asked first, and calls the next one.
        let ours: Vec<PathBuf> = sockets.into_iter().chain([library]).collect();
        command.arg0(name).args(arguments).env("LD_PRELOAD", preload(&ours));
        if let Some(address) = self.device_address {
            command.env("CLEARSTREAM_VERBS_ADDRESS", address.to_string());
        }
        let mode = match self.progress {
            ProgressMode::Adaptive => "adaptive",
            ProgressMode::Inline => "inline",
            ProgressMode::Offloaded => "offloaded",
        };
        let memory = match self.memory {
            MemoryWay::Held => "held",
            MemoryWay::Checked => "checked",
            MemoryWay::Trusted => "trusted",
        };
        command
            .env("CLEARSTREAM_VERBS_DEVICE", self.device_name)
            .env("CLEARSTREAM_VERBS_MEMORY", memory)
            .env("CLEARSTREAM_VERBS_PROGRESS", mode)
            .env("CLEARSTREAM_VERBS_CRC", switch(self.crc))
            .env("CLEARSTREAM_VERBS_STATISTICS", switch(self.statistics))
            .env("CLEARSTREAM_VERBS_TRACE", switch(self.trace))
            .env("CLEARSTREAM_VERBS_SOCKETS", switch(self.sockets));
        // Returns only when it fails.
        Err(RunError::Start { source: command.exec(), program }.into())
    }
}

/// Programs that librspreload breaks are refused, or named before they start.
fn say_what_breaks(program: &Path, librspreload: &Path, out: &Output) -> Result<(), RunError> {
    match outlook(program, librspreload) {
        Outlook::Runs => {}
        Outlook::Crashes(file) => return Err(RunError::Breaks { program: file }),
        Outlook::Warning(message) => {
            out.notice(&Notice { id: "librspreload".to_owned(), message });
            // The program takes the place of this one.
            flush();
        }
    }
    Ok(())
}

/// Returns the path of the library.
fn library() -> Result<PathBuf, CommandError> {
    let own = own_program()?;
    let library = libraries::find(&own, LIBRARY);
    library.ok_or_else(|| RunError::NoLibrary { places: libraries::places(&own) }.into())
}

fn switch(on: bool) -> &'static str {
    if on { "1" } else { "0" }
}

/// Returns the path of librspreload: in a folder of libraries, or in its
/// subfolder of this machine's architecture.
fn sockets_library() -> Result<PathBuf, RunError> {
    let below = |folder: &str| {
        let architecture = format!("{}-linux-gnu", env::consts::ARCH);
        [PathBuf::from(folder), Path::new(folder).join(architecture)]
    };
    let folders = LIBRARY_FOLDERS.into_iter().flat_map(below);
    let mut files = folders.map(|folder| folder.join("rsocket").join(SOCKETS_LIBRARY));
    files.find(|file| file.is_file()).ok_or(RunError::NoSockets)
}

/// Adds libraries to what is preloaded already.
fn preload(libraries: &[PathBuf]) -> OsString {
    let paths: Vec<_> = libraries.iter().map(|path| path.as_os_str()).collect();
    let mut list = paths.join(OsStr::new(":"));
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        list.push(":");
        list.push(others);
    }
    list
}

/// Finds a program as a shell does.
pub(super) fn find(name: &OsStr) -> Option<PathBuf> {
    let is_program =
        |path: &PathBuf| fs::metadata(path).is_ok_and(|known| known.is_file() && known.mode() & 0o111 != 0);
    let path = PathBuf::from(name);
    if path.components().count() > 1 {
        return Some(path).filter(is_program);
    }
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(&path)).find(is_program)
}

/// Checks that the loader preloads into a program.
fn check(program: &Path) -> Result<(), RunError> {
    let failed = |source| RunError::Start { program: program.to_owned(), source };
    let mode = fs::metadata(program).map_err(failed)?.permissions().mode();
    if mode & SET_ID != 0 {
        return Err(RunError::SetId { program: program.to_owned() });
    }
    let mut file = match document::open(program) {
        Ok(file) => file,
        // Executable but not readable: the kernel decides.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    let mut bytes = Vec::new();
    // The program headers follow the file header in every linker's output.
    file.by_ref().take(64 * 1024).read_to_end(&mut bytes).map_err(failed)?;
    match linkage(&bytes) {
        // A script: its interpreter gets the environment.
        None | Some(Linkage::Shared) => Ok(()),
        Some(Linkage::Static) => Err(RunError::Static { program: program.to_owned() }),
        Some(Linkage::Bits32) => Err(RunError::Bits { program: program.to_owned() }),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Linkage {
    Shared,
    Static,
    Bits32,
}

/// How a program is linked (elf(5)); `None` when it is no ELF file.
fn linkage(bytes: &[u8]) -> Option<Linkage> {
    if !bytes.starts_with(&ELF) {
        return None;
    }
    if bytes.get(4) != Some(&BITS_64) {
        return Some(Linkage::Bits32);
    }
    let number = |at: usize, length: usize| -> Option<u64> {
        let mut value = [0; 8];
        value[..length].copy_from_slice(bytes.get(at..at.checked_add(length)?)?);
        Some(u64::from_le_bytes(value))
    };
    let (first, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    let has_loader = (0..count).any(|index| {
        let at = first.checked_add(index * size).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| number(at, 4)) == Some(u64::from(PT_INTERP))
    });
    Some(if has_loader { Linkage::Shared } else { Linkage::Static })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file header, and one program header of this type.
    fn elf(bits: u8, kind: u32) -> Vec<u8> {
        let mut bytes = vec![0u8; 64 + 56];
        bytes[..5].copy_from_slice(&[0x7f, b'E', b'L', b'F', bits]);
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = 1;
        bytes[64..68].copy_from_slice(&kind.to_le_bytes());
        bytes
    }

    #[test]
    fn linkage_comes_from_the_program_headers() {
        assert_eq!(linkage(&elf(2, PT_INTERP)), Some(Linkage::Shared));
        assert_eq!(linkage(&elf(2, 1)), Some(Linkage::Static));
        assert_eq!(linkage(&elf(1, PT_INTERP)), Some(Linkage::Bits32));
        assert_eq!(linkage(b"#!/bin/sh\n"), None);
        // Truncated headers name no loader.
        assert_eq!(linkage(&elf(2, PT_INTERP)[..64]), Some(Linkage::Static));
        let this = fs::read(env::current_exe().expect("a path")).expect("this program");
        assert!(linkage(&this).is_some());
    }

    #[test]
    fn set_id_programs_are_rejected() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("program");
        fs::write(&program, elf(2, PT_INTERP)).expect("a file");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a mode");
        check(&program).expect("a program to preload into");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).expect("a mode");
        let error = check(&program).expect_err("set-uid");
        assert!(error.to_string().contains("run a copy without that bit"), "{error}");
    }
}
