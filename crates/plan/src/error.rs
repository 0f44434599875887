//! Errors, one line each.

use std::{fmt, io, path::PathBuf, time::Duration};

use clearstream_netlink::{NetlinkError, ethtool::EthtoolError};
use clearstream_schema::{
    control::FailureKind,
    failure::Classified,
    plan::{Setting, Value},
};

use crate::Danger;

/// One setting that could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{setting}: {fault}")]
pub struct SettingError {
    /// The setting.
    pub setting: Setting,
    /// Fault.
    #[source]
    pub fault: Box<Fault>,
}

/// Fault of a setting.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// It is not on this host.
    #[error("not on this host (a module not loaded, another kernel, or another namespace)")]
    Absent,
    /// Its interface has another name since.
    #[error("{was} is called {now} now: call it {was} again (`ip link set {now} name {was}`)")]
    Renamed {
        /// Name in the journal.
        was: String,
        /// Name now.
        now: String,
    },
    /// It cannot be written here at all.
    #[error("read-only here ({} is mounted read-only, or belongs to the host outside)", .path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// Needs root.
    #[error("not permitted: run as root")]
    NotPermitted,
    /// It belongs to none of the families that plans may name.
    #[error(
        "not a setting that a plan may name (network sysctls, interfaces, interrupts, queues, routes, our nft \
         tables; docs/guide/plans.md lists them): on that host, `--allow-any-setting` allows more"
    )]
    OutsideFamilies,
    /// Writing it would make the kernel load a module.
    #[error(
        "would load the kernel module {module}, and over TLS none is loaded: `modprobe {module}` on that host adds it"
    )]
    NotLoaded {
        /// The module.
        module: String,
    },
    /// A value that only the operator of the host may write there.
    #[error("{reason}")]
    NotOverTls {
        /// Reason.
        reason: String,
    },
    /// The name or the value is invalid.
    #[error("{reason}")]
    Invalid {
        /// Reason and suggested correction.
        reason: String,
    },
    /// The kernel refused a value.
    #[error("the kernel rejects \"{value}\": {source}")]
    Rejected {
        /// The value.
        value: String,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The kernel accepted the value and changed it.
    #[error("the kernel took \"{wanted}\" but holds \"{found}\" now")]
    Altered {
        /// What was written.
        wanted: String,
        /// What was read back.
        found: String,
    },
    /// It could not be read.
    #[error("cannot be read: {source}")]
    Unreadable {
        /// Error of the system.
        source: io::Error,
    },
    /// An interface's link or queueing discipline.
    #[error("{source}")]
    Netlink {
        /// Error of the kernel.
        source: NetlinkError,
    },
    /// An interface's driver.
    #[error("{source}")]
    Driver {
        /// Error of the driver.
        source: EthtoolError,
    },
}

impl Fault {
    /// The error about a setting.
    pub fn of(self, setting: &Setting) -> SettingError {
        SettingError { setting: setting.clone(), fault: Box::new(self) }
    }
}

impl SettingError {
    pub(crate) fn is_absent(&self) -> bool {
        matches!(*self.fault, Fault::Absent)
    }

    /// A plan may not name the setting here.
    pub fn is_outside_families(&self) -> bool {
        matches!(*self.fault, Fault::OutsideFamilies)
    }
}

impl Classified for SettingError {
    fn failure_kind(&self) -> FailureKind {
        match &*self.fault {
            Fault::OutsideFamilies | Fault::NotLoaded { .. } | Fault::NotOverTls { .. } => {
                FailureKind::Forbidden
            }
            Fault::Invalid { .. } => FailureKind::Invalid,
            Fault::Absent
            | Fault::Renamed { .. }
            | Fault::ReadOnly { .. }
            | Fault::NotPermitted
            | Fault::Rejected { .. }
            | Fault::Altered { .. }
            | Fault::Unreadable { .. }
            | Fault::Netlink { .. }
            | Fault::Driver { .. } => FailureKind::Unsupported,
        }
    }
}

impl From<NetlinkError> for Fault {
    fn from(source: NetlinkError) -> Self {
        Self::Netlink { source }
    }
}

impl From<EthtoolError> for Fault {
    fn from(source: EthtoolError) -> Self {
        Self::Driver { source }
    }
}

/// Name of a missing setting in messages.
pub(crate) const ABSENT: &str = "absent";

/// A value in messages.
pub(crate) fn text(value: Option<&Value>) -> String {
    value.map_or_else(|| ABSENT.to_owned(), Value::to_string)
}

/// A live value that is neither the old nor the new one of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The setting.
    pub setting: Setting,
    /// Live value; absent when there is none.
    pub live: Option<Value>,
    /// Written value; absent when the setting was removed.
    pub ours: Option<Value>,
    /// Old value; absent when there was none.
    pub old: Option<Value>,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [live, ours, old] = [&self.live, &self.ours, &self.old].map(|value| text(value.as_ref()));
        let setting = &self.setting;
        write!(f, "{setting} is \"{live}\", neither \"{ours}\" (set) nor \"{old}\" (before)")
    }
}

/// A plan or journal that was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// Made for another host.
    #[error("this plan was made for host {wanted} and this is {found}: make one here with `tune plan`")]
    OtherHost {
        /// In the plan.
        wanted: String,
        /// Here.
        found: String,
    },
    /// Made for another kernel.
    #[error("this plan was made for kernel {wanted} and this is {found}: recreate it with `tune plan`")]
    OtherKernel {
        /// In the plan.
        wanted: String,
        /// Here.
        found: String,
    },
    /// Not a plan of this format.
    #[error("not a plan that this version reads: schema \"{schema}\" version {version}")]
    OtherSchema {
        /// Its schema.
        schema: String,
        /// Its version.
        version: u32,
    },
    /// The journal would be larger than what is read back.
    #[error(
        "nothing was changed: the journal would begin with {bytes} bytes, more than {limit_bytes}: split the plan into \
         smaller ones"
    )]
    TooLarge {
        /// What it would begin with.
        bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// The plan names a setting twice.
    #[error("{setting} is in the plan twice: keep one step")]
    Twice {
        /// The setting.
        setting: Setting,
    },
    /// Checked before anything was changed.
    #[error("nothing was changed: {0}")]
    Unfit(#[source] SettingError),
    /// A step failed; everything was restored.
    #[error("step {step} failed and everything is as before: {source}")]
    StepFailed {
        /// Counted from 1.
        step: usize,
        /// Cause.
        source: SettingError,
    },
    /// A step failed, and the restore too.
    #[error(
        "{reason}; the restore failed as well: {source}; journal {journal} keeps the old values: remove the cause, then `clearstream plan recover` restores them"
    )]
    NotRestored {
        /// The first failure.
        reason: String,
        /// The journal.
        journal: String,
        /// Cause of the failed restore.
        source: Box<SettingError>,
    },
    /// Live values are neither ours nor the old ones.
    #[error("journal {journal}: nothing was restored: {}; `clearstream plan revert {journal} --force` restores the old values anyway", join(.conflicts))]
    Conflicts {
        /// The journal.
        journal: String,
        /// Each conflict.
        conflicts: Vec<Conflict>,
    },
    /// The journal was written before the last boot of the host.
    #[error(
        "journal {journal}: the host was booted since, so what it changed is gone already; nothing to restore"
    )]
    Booted {
        /// The journal.
        journal: String,
    },
    /// The journal belongs to a lab, or to the host outside of it.
    #[error("journal {journal} was written on {host} in another network namespace: revert it there")]
    Elsewhere {
        /// The journal.
        journal: String,
        /// Host name in the journal.
        host: String,
    },
    /// It was reverted before.
    #[error("journal {journal} was reverted already; nothing to do")]
    RevertedAlready {
        /// The journal.
        journal: String,
    },
    /// An earlier apply or revert did not end: reverting it needs no plan.
    #[error(
        "journal {journal} was interrupted: `clearstream plan revert {journal}` restores what it changed"
    )]
    Interrupted {
        /// The journal.
        journal: String,
    },
    /// An earlier apply or revert did not end, and what it changed cannot be restored.
    #[error("journal {journal} was interrupted, and what it changed cannot be restored: {problem}")]
    NotRecovered {
        /// The journal.
        journal: String,
        /// Cause, with the correction.
        problem: String,
    },
    /// No journal of that name.
    #[error("there is no journal \"{journal}\" in {}: `clearstream plan history` lists them", .folder.display())]
    NoJournal {
        /// Name.
        journal: String,
        /// Folder.
        folder: PathBuf,
    },
    /// The file is damaged.
    #[error("{}: not a readable journal: {reason}; nothing was done", .path.display())]
    Damaged {
        /// File.
        path: PathBuf,
        /// Where and why.
        reason: String,
    },
    /// Another process applies or reverts.
    #[error("{holder} applies or reverts another plan on this host ({} is locked): wait for it", .path.display())]
    Busy {
        /// The folder of the journals.
        path: PathBuf,
        /// `process 123`, or what is known.
        holder: String,
    },
    /// No journal can be begun, so nothing was changed.
    #[error(
        "nothing was changed: cannot {step} {}: {source}; CLEARSTREAM_PLANS names another folder for journals",
        .path.display()
    )]
    Folder {
        /// The operation.
        step: &'static str,
        /// File or folder.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// A journal, or what is beside it.
    #[error("cannot {step} {}: {source}", .path.display())]
    Storage {
        /// The operation.
        step: &'static str,
        /// File or folder.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The journal could not be continued, so everything was restored.
    #[error("the journal could not be written and everything is as before: {source}")]
    JournalFailed {
        /// Cause.
        source: Box<PlanError>,
    },
    /// Another process marked the journal while this one was applying it.
    #[error("journal {journal} was restored by its guardian meanwhile")]
    Superseded {
        /// The journal.
        journal: String,
    },
    /// A plan that waits for confirmation cannot be kept.
    #[error(
        "journal {journal} cannot be kept and is restored in {:.0} s: {source}; when its folder can be written run \
         clearstream plan confirm again",
        .left.as_secs_f64()
    )]
    NotKept {
        /// The journal.
        journal: String,
        /// Time that is left.
        left: Duration,
        /// Cause.
        source: Box<PlanError>,
    },
    /// There is no folder for journals.
    #[error("no folder for journals: set CLEARSTREAM_PLANS or HOME, or run as root")]
    NoFolder,
    /// The host cannot be identified.
    #[error("cannot identify this host: {what}: {source}")]
    Identity {
        /// The query.
        what: String,
        /// Error of the system.
        source: io::Error,
    },
    /// The effective values could not be inspected.
    #[error("cannot inspect a connection over loopback: {source}")]
    Connection {
        /// Error of the system.
        source: io::Error,
    },
    /// It would cut or change a guarded path.
    #[error("nothing was changed: {}; {remedy}", join(.dangers))]
    Dangerous {
        /// Predicted effects.
        dangers: Vec<Danger>,
        /// Suggested correction.
        remedy: &'static str,
    },
    /// A guarded path was lost after applying.
    #[error("everything was restored: {lost}")]
    Lost {
        /// The path.
        lost: String,
    },
    /// A guarded path was lost after reverting.
    #[error("everything was restored, but {lost}")]
    LostByRevert {
        /// The path.
        lost: String,
    },
    /// The routing state could not be read.
    #[error(transparent)]
    Netlink(NetlinkError),
    /// The guardian process.
    #[error("nothing was changed: the guardian that would restore it does not start: {source}")]
    Guardian {
        /// Error of the system.
        source: io::Error,
    },
    /// An earlier plan still waits for confirmation.
    #[error(
        "journal {journal} waits for confirmation, {:.0} s left: run clearstream plan confirm, or plan revert",
        .left.as_secs_f64()
    )]
    Unconfirmed {
        /// Its journal.
        journal: String,
        /// Time that is left.
        left: Duration,
    },
    /// No plan waits for confirmation.
    #[error(
        "nothing waits for confirmation here: it was confirmed or restored, applied without --confirm-within, or there was nothing to change"
    )]
    NothingToConfirm,
    /// Confirmed after the deadline.
    #[error("too late: journal {journal} was restored")]
    TooLate {
        /// Its journal.
        journal: String,
    },
    /// A change that this session does not test.
    #[error("journal {journal} is not under test in this session")]
    NotUnderTest {
        /// Its journal.
        journal: String,
    },
}

fn join(all: &[impl fmt::Display]) -> String {
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
