//! Target and options of plans: the settings of a host, its identity, its journals.

use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc};

use clearstream_schema::plan::{Setting, Value};
use serde::{Deserialize, Serialize};

use crate::{Fault, Host, Needed, Permitted, PlanError, SettingError, families, folder, journal::Head};

/// Holds settings. [`Host`] is the one of this machine.
pub trait Target: Send + Sync {
    /// The value that a setting holds, as writing takes it;
    /// `None` when the setting is not there.
    fn read(&self, setting: &Setting) -> Result<Option<Value>, SettingError>;

    /// Writes a value. The caller reads back what the kernel made of it.
    fn write(&self, setting: &Setting, value: &Value) -> Result<(), SettingError>;

    /// Removes a setting that [may be absent](Setting::may_be_absent).
    fn remove(&self, setting: &Setting) -> Result<(), SettingError> {
        let reason = "cannot be removed".to_owned();
        Err(Fault::Invalid { reason }.of(setting))
    }

    /// Fails when writing `value` cannot work, without writing.
    fn check(&self, setting: &Setting, value: &Value) -> Result<(), SettingError>;

    /// What a setting needs to hold a value, or, without one, to be there, and what does
    /// not exist any more. `None` when nothing is gone, or when that cannot be told.
    fn gone(&self, _setting: &Setting, _value: Option<&Value>) -> Option<Needed> {
        None
    }

    /// Interfaces by name, each with what stays when it gets another name.
    fn interfaces(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// Fails when writing `value` would make the kernel load a module.
    fn check_loaded(&self, _setting: &Setting, _value: &Value) -> Result<(), SettingError> {
        Ok(())
    }

    /// Identity of the host.
    fn identity(&self) -> Result<Identity, PlanError>;

    /// Whether sockets, queues and interrupts can be inspected: this is a running
    /// kernel.
    fn is_live(&self) -> bool;
}

/// A host, its boot and its network namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Host name.
    pub name: String,
    /// Kernel release.
    pub kernel: String,
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot: String,
    /// Absent for a directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
}

/// A network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// Inode, unique while the namespace lives.
    pub inode: u64,
    /// `SO_NETNS_COOKIE`, unique until the next boot; absent before Linux 5.14.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cookie: Option<u64>,
}

/// What happens while a plan is applied or reverted, in this order: the
/// journal is on disk, then for each step `Writing`, `Written` and `ReadBack`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// The journal is begun under another name.
    JournalBegun,
    /// The journal is on disk under its name.
    Journaled {
        /// Its name.
        journal: &'a str,
    },
    /// The journal names the step that is about to be written.
    Writing {
        /// Which setting.
        setting: &'a Setting,
    },
    /// The kernel has taken the value.
    Written {
        /// Which setting.
        setting: &'a Setting,
    },
    /// The value was read back and is as written.
    ReadBack {
        /// Which setting.
        setting: &'a Setting,
    },
    /// A guardian has decided to restore, and takes the lock of the journals next.
    Due,
    /// The journal has the mark that everything is restored from here on.
    Reverting,
    /// The journal has the mark of its end.
    Ended,
}

/// A journal that is on disk, before the first change.
#[derive(Debug)]
pub struct Begun<'a> {
    /// Its name.
    pub journal: &'a str,
    pub(crate) head: &'a Head,
}

/// Called before the first change; after an error nothing is changed.
pub type BeforeChanges = Arc<dyn Fn(&Begun<'_>) -> Result<(), PlanError> + Send + Sync>;

/// Receives events.
pub type OnEvent = Arc<dyn Fn(Event<'_>) + Send + Sync>;

/// Target and options of applies and reverts.
#[derive(Clone)]
pub struct Options {
    /// The host.
    pub target: Arc<dyn Target>,
    /// Folder of the journals; created when it does not exist.
    pub journals: PathBuf,
    /// Settings that may be read, written and restored.
    pub permitted: Permitted,
    /// The journal that a plan reverts, as [`crate::plan_back`] made it of it. Applying it has a
    /// journal of its own, whose revert makes the first one's changes a second time;
    /// [confirmed](crate::confirm()), the first one is reverted.
    pub reverts: Option<String>,
    /// Receives every event.
    pub on_event: OnEvent,
    /// What has to be done when the journal is on disk and nothing is changed yet.
    pub before_changes: BeforeChanges,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("journals", &self.journals).finish_non_exhaustive()
    }
}

impl Options {
    /// This machine, in the namespaces of the calling thread. Journals are in
    /// `$CLEARSTREAM_PLANS` where that is set, for root in
    /// `/var/lib/clearstream/plans`, for others in
    /// `$XDG_STATE_HOME/clearstream/plans` (`~/.local/state` by default).
    pub fn live() -> Result<Self, PlanError> {
        Ok(Self::new(Host::live(), folder::usual()?))
    }

    /// Options for a target and a folder of journals.
    pub fn new(target: impl Target + 'static, journals: impl Into<PathBuf>) -> Self {
        Self {
            target: Arc::new(target),
            journals: journals.into(),
            permitted: Permitted::default(),
            reverts: None,
            on_event: Arc::new(|_| ()),
            before_changes: Arc::new(|_| Ok(())),
        }
    }

    /// The same, for other settings.
    #[must_use]
    pub fn permitting(self, permitted: Permitted) -> Self {
        Self { permitted, ..self }
    }

    /// The same, for the plan back of a journal.
    #[must_use]
    pub fn reverting(self, journal: &str) -> Self {
        Self { reverts: Some(journal.to_owned()), ..self }
    }

    /// Refuses a setting that a plan may not name.
    pub(crate) fn check_named(&self, setting: &Setting) -> Result<(), PlanError> {
        match self.permitted {
            Permitted::Any => Ok(()),
            Permitted::Families | Permitted::FamiliesOnly | Permitted::FamiliesLoaded => {
                families::check_permitted(setting).map_err(PlanError::Unfit)
            }
        }
    }

    /// Refuses a value that a plan may not give to a setting.
    pub(crate) fn check_given(&self, setting: &Setting, value: &Value) -> Result<(), PlanError> {
        match self.permitted {
            Permitted::FamiliesLoaded => self.target.check_loaded(setting, value).map_err(PlanError::Unfit),
            _ => Ok(()),
        }
    }

    /// Refuses a setting that may not be read or restored.
    pub(crate) fn check_touched(&self, setting: &Setting) -> Result<(), PlanError> {
        match self.permitted {
            Permitted::FamiliesOnly | Permitted::FamiliesLoaded => self.check_named(setting),
            Permitted::Families | Permitted::Any => Ok(()),
        }
    }

    /// The same, with a receiver of every event.
    #[must_use]
    pub fn on_event(self, on_event: impl Fn(Event<'_>) + Send + Sync + 'static) -> Self {
        Self { on_event: Arc::new(on_event), ..self }
    }

    /// The same, with a step before the first change.
    #[must_use]
    pub fn before_changes(
        self,
        before_changes: impl Fn(&Begun<'_>) -> Result<(), PlanError> + Send + Sync + 'static,
    ) -> Self {
        Self { before_changes: Arc::new(before_changes), ..self }
    }

    pub(crate) fn emit(&self, event: Event<'_>) {
        (self.on_event)(event);
    }
}
