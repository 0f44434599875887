//! Loads a congestion control written in BPF into the running kernel and
//! unloads it.
//!
//! The kernel keeps a registered congestion control as long as its link
//! (`struct_ops`, Documentation/bpf) is referenced. It would be unregistered
//! when the program exits; the link is therefore pinned in the BPF file system,
//! below [`PIN_DIRECTORY`], and removing the pin unregisters the congestion
//! control. Connections that use it keep it until they close.
//!
//! It is registered for the machine: every network namespace can use it. The
//! default congestion control is not changed.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod bpffs;
mod error;
pub mod requirements;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use clearstream_schema::congestion::{LOADABLE, Loadable, PIN_DIRECTORY};
use libbpf_rs::{Link, MapCore, ObjectBuilder, PrintLevel};

pub use error::LoadError;

/// The compiled program; libelf requires alignment to eight bytes.
#[repr(align(8))]
struct Aligned<T: ?Sized>(T);

static HTCP: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/htcp.bpf.o")));

/// Timeout of the unregistration, which takes an RCU grace period:
/// milliseconds, more on a loaded machine.
const REMOVAL_LIMIT: Duration = Duration::from_secs(10);

/// Last warnings of libbpf: its error numbers alone do not distinguish a
/// verifier error from a missing symbol.
static LAST_WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Loads `algorithm` (`htcp`); it stays in the kernel.
///
/// # Errors
/// [`LoadError`]; then the kernel is unchanged.
pub fn load(algorithm: &str) -> Result<&'static Loadable, LoadError> {
    let control = find(algorithm)?;
    let root = Path::new("/");
    if requirements::available(root)?.iter().any(|name| name == control.name) {
        return Err(LoadError::Present { name: control.name });
    }
    requirements::check(root)?;
    let directory = bpffs::prepare(&root.join(PIN_DIRECTORY))?;
    attach(control).and_then(|mut link| pin(&mut link, &directory.join(control.name))).inspect_err(|_| {
        // The directory (and the mount) were created for this one.
        let _ = bpffs::remove(&directory);
    })?;
    Ok(control)
}

/// Unloads `algorithm`.
///
/// # Errors
/// [`LoadError::Absent`] where it was not loaded by [`load`].
pub fn unload(algorithm: &str) -> Result<&'static Loadable, LoadError> {
    let control = find(algorithm)?;
    let root = Path::new("/");
    let directory = &root.join(PIN_DIRECTORY);
    let path = directory.join(control.name);
    fs::remove_file(&path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => LoadError::Absent { name: control.name, path: path.clone() },
        std::io::ErrorKind::PermissionDenied => LoadError::Privilege { what: "removing the pin" },
        _ => LoadError::File { what: "remove", path: path.clone(), source },
    })?;
    bpffs::remove(directory)?;
    let deadline = Instant::now() + REMOVAL_LIMIT;
    while requirements::available(root)?.iter().any(|name| name == control.name) {
        if Instant::now() > deadline {
            return Err(LoadError::Held { name: control.name });
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(control)
}

fn find(algorithm: &str) -> Result<&'static Loadable, LoadError> {
    LOADABLE
        .iter()
        .find(|control| control.algorithm == algorithm)
        .ok_or_else(|| LoadError::Unknown { algorithm: algorithm.to_owned() })
}

/// Verifies and registers the program; the returned link keeps it registered.
fn attach(control: &Loadable) -> Result<Link, LoadError> {
    libbpf_rs::set_print(Some((PrintLevel::Warn, keep_warning)));
    let fail = |source: libbpf_rs::Error| match source.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => LoadError::Privilege { what: "bpf(2)" },
        libbpf_rs::ErrorKind::AlreadyExists => LoadError::Present { name: control.name },
        _ => LoadError::Kernel { name: control.name, message: warnings(), source },
    };
    let mut object =
        ObjectBuilder::default().open_memory(&HTCP.0).and_then(|object| object.load()).map_err(fail)?;
    let mut map = object
        .maps_mut()
        .find(|map| map.name() == control.name)
        .ok_or(LoadError::Program { name: control.name })?;
    map.attach_struct_ops().map_err(fail)
}

fn pin(link: &mut Link, path: &PathBuf) -> Result<(), LoadError> {
    link.pin(path).map_err(|source| LoadError::Pin { path: path.clone(), source })
}

fn keep_warning(_: PrintLevel, text: String) {
    if let Ok(mut kept) = LAST_WARNINGS.lock() {
        kept.push(text.trim().to_owned());
    }
}

/// Returns the first warning of libbpf: later ones follow from it.
fn warnings() -> String {
    let kept = LAST_WARNINGS.lock().map(|kept| kept.first().cloned());
    kept.ok().flatten().unwrap_or_else(|| "the kernel's log (dmesg) may have details".to_owned())
}
