//! Interrupt coalescing, compatible with `ethtool -c`.

use std::collections::BTreeMap;

use clearstream_schema::host::CoalescingValue;

use super::{
    Ethtool, EthtoolError, attributes, control_error, number,
    value::{COALESCE, Width},
};

/// Settings of every driver with coalescing, so that 0 is a value.
const ALWAYS: [&str; 2] = ["rx-usecs", "tx-usecs"];

impl Ethtool {
    /// Settings of the driver, by ethtool's names. Over netlink (Linux 5.7), before by ioctl, where 0 may
    /// mean that the device lacks a setting: there only the intervals are kept when they are 0.
    ///
    /// # Errors
    /// `NotSupported` for drivers without any.
    pub fn coalescing(&mut self, interface: &str) -> Result<BTreeMap<String, CoalescingValue>, EthtoolError> {
        let body = match self.query(interface, COALESCE.get) {
            Err(EthtoolError::NotSupported { .. } | EthtoolError::NoFamily) => {
                return self.coalescing_by_ioctl(interface);
            }
            other => other?,
        };
        Ok(attributes(&body).filter_map(|(kind, value)| named(kind, number(value)?)).collect())
    }

    /// `ETHTOOL_GCOALESCE`.
    ///
    /// # Errors
    /// `NotSupported` for drivers without any.
    pub fn coalescing_by_ioctl(
        &mut self,
        interface: &str,
    ) -> Result<BTreeMap<String, CoalescingValue>, EthtoolError> {
        let found =
            self.control.coalescing(interface).map_err(control_error(interface, COALESCE.get.what))?;
        // Attribute 2, `ETHTOOL_A_COALESCE_RX_USECS`, is the first number of the structure; the others follow
        // in the same order.
        Ok((2..)
            .zip(found)
            .filter_map(|(kind, value)| Some((named(kind, value)?, value)))
            .filter(|((name, _), value)| *value != 0 || ALWAYS.contains(&name.as_str()))
            .map(|(named, _)| named)
            .collect())
    }
}

fn named(kind: u16, number: u32) -> Option<(String, CoalescingValue)> {
    let (name, _, width) = COALESCE.values.iter().find(|(_, attribute, _)| *attribute == kind)?;
    let value = match width {
        Width::Number => CoalescingValue::Number(number),
        Width::Switch => CoalescingValue::Switch(number != 0),
    };
    Some(((*name).to_owned(), value))
}
