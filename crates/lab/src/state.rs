//! State of a running lab on disk: one folder with the state file, the control
//! socket and the hosts file, and a lock released when the keeper exits.

use std::{
    fs, io,
    os::unix::{fs::MetadataExt, net::UnixStream},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use clearstream_schema::lab::{LabFault, LabFile};
use clearstream_sys::{
    document, file, private_folder,
    writer_lock::{LockError, WriterLock},
};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::LabError;

/// Environment variable of every process started in a lab, with the lab's
/// instance: identifies processes left over by a crash.
pub const INSTANCE_VARIABLE: &str = "CLEARSTREAM_LAB";

const SCHEMA: &str = "clearstream.lab-state";
const VERSION: u32 = 1;

/// Contents of the state file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) schema: String,
    pub(crate) version: u32,
    /// Unique identifier of this run of the lab.
    pub(crate) instance: String,
    pub(crate) keeper_pid: u32,
    pub(crate) file: LabFile,
    pub(crate) hosts: Vec<HostState>,
    /// Injected faults.
    #[serde(default)]
    pub(crate) faults: Vec<LabFault>,
}

/// State of one host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct HostState {
    pub(crate) name: String,
    /// Process that holds the namespaces.
    pub(crate) pid: u32,
    /// Inode of the network namespace.
    pub(crate) net_inode: u64,
}

impl HostState {
    /// Whether the process that holds the namespaces exists, and its process ID
    /// was not reused.
    pub(crate) fn is_alive(&self) -> bool {
        fs::metadata(format!("/proc/{}/ns/net", self.pid)).is_ok_and(|meta| meta.ino() == self.net_inode)
    }
}

impl State {
    pub(crate) fn new(file: LabFile, hosts: Vec<HostState>) -> Self {
        let keeper_pid = std::process::id();
        // Time since boot distinguishes a reused process ID.
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let instance = format!("{}-{keeper_pid}-{}{:09}", file.name, now.tv_sec, now.tv_nsec);
        Self {
            schema: SCHEMA.to_owned(),
            version: VERSION,
            instance,
            keeper_pid,
            file,
            hosts,
            faults: Vec::new(),
        }
    }
}

/// Returns the folder of all labs: /run/clearstream/labs for root, below
/// `$XDG_RUNTIME_DIR` for other users.
pub(crate) fn labs_folder() -> Result<PathBuf, LabError> {
    let folder = private_folder::path().ok_or_else(|| LabError::Unsupported {
        what: "there is no folder for the state of labs".to_owned(),
        remedy: "run this as root, or set XDG_RUNTIME_DIR".to_owned(),
    })?;
    Ok(folder.join("labs"))
}

/// Returns the names that have a folder, running or not; none for a user who
/// cannot run labs.
pub(crate) fn names() -> Result<Vec<String>, LabError> {
    let folder = match labs_folder() {
        Err(LabError::Unsupported { .. }) => return Ok(Vec::new()),
        folder => folder?,
    };
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(LabError::file("read", folder)(error)),
    };
    let mut names: Vec<String> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    Ok(names)
}

/// Folder of one lab.
#[derive(Debug, Clone)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn of(name: &str) -> Result<Self, LabError> {
        Ok(Self(labs_folder()?.join(name)))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.0.join("control.sock")
    }

    pub(crate) fn hosts(&self) -> PathBuf {
        self.0.join("hosts")
    }

    fn state(&self) -> PathBuf {
        self.0.join("state.json")
    }

    /// Connects to the keeper; `None` when it is not running.
    pub(crate) fn connect(&self) -> Result<Option<UnixStream>, LabError> {
        match UnixStream::connect(self.socket()) {
            Ok(stream) => Ok(Some(stream)),
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) =>
            {
                Ok(None)
            }
            Err(error) => Err(LabError::file("connect to", self.socket())(error)),
        }
    }

    pub(crate) fn create(&self) -> Result<(), LabError> {
        private_folder::make(&self.0).map_err(LabError::file("make", &self.0))
    }

    pub(crate) fn read(&self) -> Result<State, LabError> {
        let path = self.state();
        let text =
            document::read_text(&path, document::DOCUMENT_BYTES).map_err(LabError::file("read", &path))?;
        clearstream_schema::json::from_str(&text).map_err(|error| {
            LabError::file("understand", path)(io::Error::new(io::ErrorKind::InvalidData, error))
        })
    }

    /// Writes the state atomically: a reader sees the old or the new one.
    pub(crate) fn write(&self, state: &State) -> Result<(), LabError> {
        let path = self.state();
        let text = clearstream_schema::json::to_string_pretty(state)
            .map_err(|error| LabError::file("write", &path)(io::Error::other(error)))?;
        file::replace_without_sync(&path, text.as_bytes()).map_err(LabError::file("write", &path))
    }

    pub(crate) fn remove(&self) -> Result<(), LabError> {
        match fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(LabError::file("remove", &self.0)(error))
            }
            _ => Ok(()),
        }
    }
}

/// Lock of a lab's name. The kernel releases it when the keeper exits, for any
/// reason.
#[derive(Debug)]
pub(crate) struct Lock(WriterLock);

impl Lock {
    /// Acquires the lock; `None` when another keeper holds it.
    pub(crate) fn take(name: &str) -> Result<Option<Self>, LabError> {
        let folder = labs_folder()?;
        private_folder::make(&folder).map_err(LabError::file("make", &folder))?;
        let path = folder.join(format!("{name}.lock"));
        match WriterLock::take(&path) {
            Ok(lock) => Ok(Some(Self(lock))),
            Err(LockError::Held { .. }) => Ok(None),
            Err(LockError::File(error)) => Err(LabError::file("lock", path)(error)),
        }
    }

    /// Releases the name and removes the file.
    pub(crate) fn release(self) {
        drop(self.0);
    }
}

/// Maximum time in which the threads of a keeper that was killed end.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Cleans up labs whose keeper has died: processes started in them, and their
/// folders.
pub(crate) fn clear_dead() -> Result<(), LabError> {
    for name in names()? {
        if let Some(lock) = take_of_dead(&name)? {
            clear(&name)?;
            lock.release();
        }
    }
    Ok(())
}

/// The lock of a lab whose keeper has died. A keeper that was killed is a zombie while its threads end, the last of which
/// releases the lock.
fn take_of_dead(name: &str) -> Result<Option<Lock>, LabError> {
    let deadline = Instant::now() + END_TIMEOUT;
    loop {
        let taken = Lock::take(name)?;
        let is_ending =
            || Folder::of(name).and_then(|folder| folder.read()).is_ok_and(|it| is_ending(it.keeper_pid));
        if taken.is_some() || Instant::now() > deadline || !is_ending() {
            return Ok(taken);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a process has ended but for its threads, or altogether (proc_pid_stat(5)).
fn is_ending(process: u32) -> bool {
    let path = format!("/proc/{process}/stat");
    let stat = document::read_text(Path::new(&path), document::DOCUMENT_BYTES);
    let stat = stat.unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

/// Cleans up a dead lab. The caller holds its lock.
pub(crate) fn clear(name: &str) -> Result<(), LabError> {
    let folder = Folder::of(name)?;
    // Without a readable state file there are no processes to find.
    if let Ok(state) = folder.read() {
        end_processes(&state);
    }
    folder.remove()
}

/// Kills processes in the namespaces of a lab that were started in it.
pub(crate) fn end_processes(state: &State) {
    // A process being forked is not listed yet, so repeat.
    for _ in 0..5 {
        let found = processes(state);
        if found.is_empty() {
            return;
        }
        for pid in found {
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns processes in a network namespace of the lab that have its instance.
/// Both must match: a namespace's inode is reused, and a variable can be
/// inherited by processes that have left the lab.
fn processes(state: &State) -> Vec<Pid> {
    let mark = format!("{INSTANCE_VARIABLE}={}", state.instance);
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers =
        entries.filter_map(Result::ok).filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    numbers
        .filter(|number| {
            let inside = fs::metadata(format!("/proc/{number}/ns/net"))
                .is_ok_and(|meta| state.hosts.iter().any(|host| host.net_inode == meta.ino()));
            inside
                && document::read(Path::new(&format!("/proc/{number}/environ")), document::DOCUMENT_BYTES)
                    .is_ok_and(|environment| {
                        environment.split(|byte| *byte == 0).any(|item| item == mark.as_bytes())
                    })
        })
        .filter_map(Pid::from_raw)
        .collect()
}
