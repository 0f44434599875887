//! Interface of a configuration file format, and the list of all formats.

use std::fmt;

use crate::{
    formats::{
        ansible::Ansible, cloudinit::CloudInit, ifcfg::Ifcfg, ifupdown::Ifupdown, iproute2::Iproute2,
        netplan::Netplan, networkd::Networkd, networkmanager::NetworkManager, nmstate::Nmstate, shell::Shell,
        sysctl::Sysctl, tuned::Tuned, udev::Udev, wgquick::WgQuick, wicked::Wicked,
    },
    read::{
        detect::{FileName, Reader},
        gathering::Gathering,
        yaml::Yaml,
    },
    routes::Routes,
    settings::Settings,
};

/// A format of files by which hosts are configured, as far as it is read or
/// written here.
pub(crate) trait Backend: fmt::Debug + Sync {
    /// Its name.
    fn name(&self) -> &'static str;

    /// Writer of a host's routing.
    fn routes(&self) -> Option<&'static Routes> {
        None
    }

    /// Writer of the settings of a plan.
    fn settings(&self) -> Option<&'static Settings> {
        None
    }

    /// Reader of a file of this name.
    fn named(&self, _name: &FileName<'_>) -> Option<Reader> {
        None
    }

    /// Reader of a text whose file name decides nothing.
    fn holding(&self, _name: &FileName<'_>, _text: &str) -> Option<Reader> {
        None
    }

    /// Reader of a document of a YAML file.
    fn document(&self, _document: &Yaml) -> Option<ReadDocument> {
        None
    }
}

/// Reads a document of the file of this name.
pub(crate) type ReadDocument = fn(&str, &Yaml, &mut Gathering);

/// Every format. A file is read by the first that accepts its name, a text by the last that
/// accepts it: a few characters already match a sysctl.
pub(crate) static BACKENDS: [&dyn Backend; 15] = [
    &Ifcfg,
    &Wicked,
    &CloudInit,
    &Sysctl,
    &NetworkManager,
    &Networkd,
    &Netplan,
    &Nmstate,
    &Udev,
    &WgQuick,
    &Tuned,
    &Ansible,
    &Iproute2,
    &Shell,
    &Ifupdown,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_format_has_a_unique_name() {
        let names: BTreeSet<&str> = BACKENDS.iter().map(|backend| backend.name()).collect();
        assert_eq!(names.len(), BACKENDS.len());
    }
}
