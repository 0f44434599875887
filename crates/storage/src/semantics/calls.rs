//! Calls of a controller at the agents that carry out file operations. They need the right to change: an agent
//! writes below a directory that the controller names, if only in a folder of its own.

use clearstream_control::Call;
use clearstream_schema::{notice::Notice, scope::Right, semantics::SemanticsFound};
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
    /// No other agent opens it.
    #[serde(default)]
    pub is_alone: bool,
}

impl Call for Enter {
    const NAME: &'static str = "semantics-enter";
    const NEEDS: Right = Right::Change;
    type Reply = Entered;
}

/// The opened folder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entered {
    /// Type and source of the file system.
    pub file_system: String,
    /// Folders of earlier runs that could not be removed.
    #[serde(default)]
    pub left_over: Option<Notice>,
}

/// Has a process of the agent carry out an operation in the folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Act {
    /// Number of the process, which [`Order::Start`] returned.
    #[serde(default)]
    pub process: u32,
    /// What it is to do.
    pub order: Order,
}

impl Call for Act {
    const NAME: &'static str = "semantics-act";
    const NEEDS: Right = Right::Change;
    type Reply = Acted;
}

/// What happens with a process. An operation that takes longer than a moment is pending; then [`Order::Await`] has its
/// result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Starts one in the folder; returns its number, and as a value its process ID.
    Start,
    /// Hands an operation to it, and waits for the result.
    Do(Operation),
    /// Hands an operation to it.
    Begin(Operation),
    /// Waits for the result of the operation that it carries out.
    Await {
        /// At most this long.
        timeout_ms: u64,
    },
    /// Sends it SIGALRM, which ends a system call that waits and nothing else.
    Interrupt,
    /// Ends it by SIGKILL.
    Kill,
}

/// Closes the folder, removes what processes of this agent made in it, and the folder where this agent created it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leave {
    /// Names to which processes of another agent have moved what is in it.
    #[serde(default)]
    pub moved: Vec<Vec<u8>>,
}

impl Call for Leave {
    const NAME: &'static str = "semantics-leave";
    const NEEDS: Right = Right::Change;
    type Reply = Left;
}

/// What is left.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// The folder remains, because of what others have in it.
    #[serde(default)]
    pub remains: Option<String>,
    /// Names to which processes of this agent have moved what is in it.
    #[serde(default)]
    pub moved: Vec<Vec<u8>>,
}

/// The call that sets or clears a lock.
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

/// What it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockChange {
    /// Sets a lock that others may have, too.
    Shared,
    /// Sets a lock that excludes others.
    Exclusive,
    /// Clears it.
    Unlock,
}

/// The call that makes a name unless it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Claim {
    /// open(2) with `O_EXCL`.
    Open,
    /// link(2) to a file of its own, as programs do where `O_EXCL` is not to be trusted.
    Link,
    /// mkdir(2)
    Folder,
}

#[allow(missing_docs, reason = "the line of each variant covers its fields")]
/// A file operation. Files are named within the folder, and open files by number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Opens the folder, as the first operation of a process; `is_alone` where processes of this agent alone act in it, and
    /// inode numbers are those of the file system.
    Enter { directory: String, folder: String, is_alone: bool },
    /// Goes on in a folder of the folder.
    Descend { name: String },
    /// Goes on as another user, with these groups besides the one of its number.
    Become { user: u32, groups: Vec<u32> },
    /// Opens for reading and writing, and creates the file unless it is there; returns its number.
    Open { name: String },
    /// Creates a file with this mode and opens it for reading and writing; returns its number.
    Create { name: String, mode: u32 },
    /// Opens an existing file for reading, and for writing; returns its number.
    OpenExisting { name: String, writing: bool },
    /// Closes an open file.
    Close { file: u32 },
    /// Duplicates the descriptor; returns the number of the other one, which has the same description.
    Duplicate { file: u32 },
    /// Starts a child that shares the description of an open file, as fork(2) leaves it; the child has it as number 0. For
    /// that the descriptor is duplicated, and closed again, unless it is to be kept, as long as there is the child.
    Share { file: u32, keeps: bool },
    /// Carries out an operation by the child.
    Child { operation: Box<Operation> },
    /// Ends the child by SIGKILL.
    EndChild,
    /// Writes at an offset.
    Write { file: u32, offset: u64, bytes: Vec<u8> },
    /// Reads at an offset.
    Read { file: u32, offset: u64, length: usize },
    /// Opens, reads from the beginning and closes.
    ReadName { name: String, length: usize },
    /// Opens, creates or truncates, writes and closes.
    Store { name: String, bytes: Vec<u8> },
    /// Sets or clears a lock of the bytes from `start` to before `end`, or to the end of the file where these are the
    /// same; waits for it.
    Lock { file: u32, call: LockCall, change: LockChange, start: i64, end: i64, wait: bool },
    /// What is in the way of an exclusive lock on a byte: its process, and as values 1 for exclusive, first byte, length;
    /// no values for nothing.
    LockHolder { file: u32, call: LockCall, start: i64 },
    /// Maps the first 4096 bytes of an open file.
    Map { file: u32 },
    /// Stores bytes in a mapping.
    MapStore { file: u32, offset: usize, bytes: Vec<u8> },
    /// Loads bytes from a mapping.
    MapLoad { file: u32, offset: usize, length: usize },
    /// Writes a mapping to the file: msync(2).
    MapSynchronize { file: u32 },
    /// Attributes of a file by its name ([`attribute`]).
    Attributes { name: String },
    /// Attributes of an open file.
    AttributesOf { file: u32 },
    /// Sets the mode.
    SetMode { name: String, mode: u32 },
    /// Sets owner and group.
    SetOwner { name: String, user: Option<u32>, group: Option<u32> },
    /// Sets both times to now, or to this second.
    SetTimes { name: String, second: Option<i64> },
    /// Sets the size.
    Truncate { name: String, length: u64 },
    /// Makes a second name.
    Link { from: String, to: String },
    /// Makes a folder.
    MakeFolder { name: String },
    /// Names in the folder that begin with this one: how many.
    List { prefix: String },
    /// Removes a file.
    Remove { name: String },
    /// Renames a file.
    Rename { from: String, to: String },
    /// Appends numbered records of a writer, each by one write(2).
    Append { name: String, writer: u8, count: u32, start_at_ns: u64 },
    /// Claims `PREFIX-0` to `PREFIX-COUNT`, as names that are not there yet; returns the numbers of those that it got.
    Claim { prefix: String, by: Claim, count: u32, start_at_ns: u64 },
    /// Replaces a file by rename for a time; returns how often.
    Replace { name: String, duration_ms: u64 },
    /// Opens and reads a file that is being replaced, for a time.
    Observe { name: String, duration_ms: u64 },
    /// A check of one process on one mount; what changes late is waited for this long.
    Feature { check: String, wait_ms: u64 },
    /// Closes all files and mappings, and ends the child.
    Reset,
}

/// Places of attributes in [`Acted::values`].
pub mod attribute {
    /// Permissions, with the bits of set-user-ID, set-group-ID and sticky.
    pub const MODE: usize = 0;
    /// Owner.
    pub const USER: usize = 1;
    /// Group.
    pub const GROUP: usize = 2;
    /// Names.
    pub const LINKS: usize = 3;
    /// Bytes.
    pub const SIZE: usize = 4;
    /// Time of modification in nanoseconds.
    pub const MODIFIED_NS: usize = 5;
}

/// Result of an operation; which fields are set depends on it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acted {
    /// The kernel's error; the rest is then empty.
    #[serde(default)]
    pub errno: Option<i32>,
    /// It is still carried out.
    #[serde(default)]
    pub pending: bool,
    /// Signal that ended the process, 0 where it ended by itself.
    #[serde(default)]
    pub ended_by: Option<i32>,
    /// Number that the operation returns.
    #[serde(default)]
    pub number: i64,
    /// Numbers that it returns.
    #[serde(default)]
    pub values: Vec<i64>,
    /// Bytes that were read.
    #[serde(default)]
    pub bytes: Vec<u8>,
    /// Errors by number, of operations that continue after one.
    #[serde(default)]
    pub errors: Vec<i32>,
    /// Reads that found no file.
    #[serde(default)]
    pub missing_count: u64,
    /// Reads that found parts of two files.
    #[serde(default)]
    pub mixed_count: u64,
    /// Reads that found less than a file.
    #[serde(default)]
    pub short_count: u64,
    /// Result of [`Operation::Feature`].
    #[serde(default)]
    pub found: Option<SemanticsFound>,
}
