//! Who may name which settings.

/// Which settings may be read, written and restored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Permitted {
    /// Plans name settings of the families; a journal of this host is restored
    /// whatever it names. For the operator.
    #[default]
    Families,
    /// Everything is within the families: reading and restoring too. For an agent.
    FamiliesOnly,
    /// The same, and no value makes the kernel load a module. For a controller over
    /// TLS.
    FamiliesLoaded,
    /// Any setting: the operator has permitted it for this plan.
    Any,
}
