//! Calls of a controller at the agents that carry out file operations. They need the right to change: an agent
//! writes below a directory that the controller names, if only in a folder of its own.

use clearstream_control::{Call, Done};
use clearstream_schema::{scope::Right, semantics::SemanticsFound};
use serde::{Deserialize, Serialize};

/// Opens the folder of the checks below a directory of the agent's host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enter {
    /// Absolute path of an existing directory.
    pub directory: String,
    /// Name of the folder, `.clearstream-semantics-` and hexadecimal digits.
    pub folder: String,
    /// Creates it; the agent then removes it, at the latest when its session ends.
    pub create: bool,
}

impl Call for Enter {
    const NAME: &'static str = "semantics-enter";
    const NEEDS: Right = Right::Change;
    type Reply = Entered;
}

/// The opened folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entered {
    /// Type and source of the file system.
    pub file_system: String,
    /// Process of the agent.
    pub process: u32,
}

/// Carries out an operation in the folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Act {
    /// The operation.
    pub operation: Operation,
}

impl Call for Act {
    const NAME: &'static str = "semantics-act";
    const NEEDS: Right = Right::Change;
    type Reply = Acted;
}

/// Closes the folder, and removes it where this agent created it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leave {}

impl Call for Leave {
    const NAME: &'static str = "semantics-leave";
    const NEEDS: Right = Right::Change;
    type Reply = Done;
}

/// A lock to set or clear without waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockCall {
    /// flock(2)
    Flock,
    /// fcntl(2) `F_SETLK`
    Process,
    /// fcntl(2) `F_OFD_SETLK`
    Description,
}

#[allow(missing_docs, reason = "the line of each variant covers its fields")]
/// A file operation. Files are named within the folder, and open files by number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Opens for reading and writing, and creates the file unless it is there; returns its number.
    Open { name: String },
    /// Opens an existing file for reading and writing; returns its number.
    OpenExisting { name: String },
    /// Closes an open file.
    Close { file: u32 },
    /// Writes at an offset.
    Write { file: u32, offset: u64, bytes: Vec<u8> },
    /// Reads at an offset.
    Read { file: u32, offset: u64, length: usize },
    /// Opens, reads from the beginning and closes.
    ReadName { name: String, length: usize },
    /// Opens, creates or truncates, writes and closes.
    Store { name: String, bytes: Vec<u8> },
    /// Sets or clears a lock of the bytes from `start` to before `end`.
    Lock { file: u32, call: LockCall, exclusive: bool, start: i64, end: i64 },
    /// Clears a lock.
    Unlock { file: u32, call: LockCall, start: i64, end: i64 },
    /// Waits at most this long for an exclusive lock of the process on one byte; returns 1 when granted, 0 when
    /// it still waits, then for the rest of the process.
    LockWait { file: u32, start: i64, timeout_ms: u64 },
    /// Process that holds a lock of a process on a byte; 0 for none.
    LockHolder { file: u32, start: i64 },
    /// Maps the first 4096 bytes of an open file.
    Map { file: u32 },
    /// Stores bytes in a mapping.
    MapStore { file: u32, offset: usize, bytes: Vec<u8> },
    /// Loads bytes from a mapping.
    MapLoad { file: u32, offset: usize, length: usize },
    /// Size of a file by its name.
    Size { name: String },
    /// Links of an open file.
    Links { file: u32 },
    /// Names in the folder that begin with this one: how many.
    List { prefix: String },
    /// Removes a file.
    Remove { name: String },
    /// Renames a file.
    Rename { from: String, to: String },
    /// Appends numbered records of a writer, each by one write(2).
    Append { name: String, writer: u8, count: u32, start_at_ns: u64 },
    /// Creates `PREFIX-0` to `PREFIX-COUNT` with `O_EXCL`; returns the numbers of those created.
    CreateExclusive { prefix: String, count: u32, start_at_ns: u64 },
    /// Replaces a file by rename for a time; returns how often.
    Replace { name: String, duration_ms: u64 },
    /// Opens and reads a file that is being replaced, for a time.
    Observe { name: String, duration_ms: u64 },
    /// A check of one process on one mount.
    Feature { check: String },
    /// Closes all files and mappings.
    Reset,
}

/// Result of an operation; which fields are set depends on it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acted {
    /// The kernel's error; the rest is then empty.
    #[serde(default)]
    pub errno: Option<i32>,
    /// Number that the operation returns.
    #[serde(default)]
    pub number: i64,
    /// Bytes that were read.
    #[serde(default)]
    pub bytes: Vec<u8>,
    /// Numbers of the files created.
    #[serde(default)]
    pub created: Vec<u32>,
    /// Errors by number, of operations that continue after one.
    #[serde(default)]
    pub errors: Vec<i32>,
    /// Reads that found no file.
    #[serde(default)]
    pub missing_count: u64,
    /// Reads that found parts of two files.
    #[serde(default)]
    pub mixed_count: u64,
    /// Result of [`Operation::Feature`].
    #[serde(default)]
    pub found: Option<SemanticsFound>,
}
