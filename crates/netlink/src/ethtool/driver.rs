//! Name, versions and bus of a driver, compatible with `ethtool -i`.

use clearstream_schema::host::DriverInformation;

use super::{Ethtool, EthtoolError, control_error};

impl Ethtool {
    /// `ETHTOOL_GDRVINFO`, which netlink does not carry. Empty strings are absent.
    ///
    /// # Errors
    /// `NotSupported` for interfaces without a driver (loopback).
    pub fn driver_information(&mut self, interface: &str) -> Result<DriverInformation, EthtoolError> {
        let found = self.control.driver(interface).map_err(control_error(interface, "driver"))?;
        let known = |text: String| (!text.is_empty()).then_some(text);
        Ok(DriverInformation {
            name: found.name,
            version: known(found.version),
            firmware_version: known(found.firmware_version),
            bus: known(found.bus),
        })
    }
}
