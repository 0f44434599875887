//! The formats, a file or folder each.

pub(crate) mod ansible;
pub(crate) mod cloudinit;
pub(crate) mod ifcfg;
pub(crate) mod ifupdown;
pub(crate) mod iproute2;
pub(crate) mod netplan;
pub(crate) mod networkd;
pub(crate) mod networkmanager;
pub(crate) mod nmstate;
pub(crate) mod shell;
pub(crate) mod sysctl;
pub(crate) mod tuned;
pub(crate) mod udev;
pub(crate) mod wgquick;
pub(crate) mod wicked;
