//! Rings, channels and features by ioctl, for kernels without the ethtool netlink
//! family (before 5.6).

use std::collections::BTreeMap;

use clearstream_sys::ethtool::Counts;

use super::{CHANNELS, Ethtool, EthtoolError, FEATURES, Query, RINGS, control_error, features, unchangeable};

/// Attribute of the first number: `ETHTOOL_A_RINGS_RX_MAX` and
/// `ETHTOOL_A_CHANNELS_RX_MAX`. The others follow in the order of the structures.
const FIRST: u16 = 2;
/// The four maxima precede the current values.
const MAXIMA: usize = 4;

fn counts(query: Query) -> Option<Counts> {
    match query.what {
        what if what == RINGS.what => Some(Counts::Rings),
        what if what == CHANNELS.what => Some(Counts::Channels),
        _ => None,
    }
}

impl Ethtool {
    /// The numbers of a request by attribute; values that the device lacks are omitted.
    ///
    /// # Errors
    /// `NoFamily` for requests other than rings and channels.
    pub(super) fn numbers_by_ioctl(
        &mut self,
        interface: &str,
        query: Query,
    ) -> Result<BTreeMap<u16, u32>, EthtoolError> {
        let counts = counts(query).ok_or(EthtoolError::NoFamily)?;
        let found = self.control.counts(interface, counts).map_err(control_error(interface, query.what))?;
        let has = |place: usize| found[place % MAXIMA] > 0 || found[place % MAXIMA + MAXIMA] > 0;
        let named = (FIRST..).zip(found).enumerate().filter(|(place, _)| has(*place));
        Ok(named.map(|(_, number)| number).collect())
    }

    /// Sets one number of rings or channels, and keeps the others.
    ///
    /// # Errors
    /// `NoFamily` for other requests.
    pub(super) fn set_number_by_ioctl(
        &mut self,
        interface: &str,
        query: Query,
        (attribute, value): (u16, u32),
    ) -> Result<(), EthtoolError> {
        let counts = counts(query).ok_or(EthtoolError::NoFamily)?;
        let refused = || control_error(interface, query.what);
        let mut numbers = self.control.counts(interface, counts).map_err(refused()).map_err(unchangeable)?;
        let place = numbers.get_mut(usize::from(attribute.saturating_sub(FIRST)));
        *place.ok_or(EthtoolError::NoFamily)? = value;
        self.control.set_counts(interface, counts, numbers).map_err(refused()).map_err(unchangeable)
    }

    pub(super) fn features_by_ioctl(
        &mut self,
        interface: &str,
    ) -> Result<BTreeMap<String, bool>, EthtoolError> {
        let found = self.control.features(interface).map_err(control_error(interface, FEATURES.what))?;
        Ok(features::with_groups(found.into_iter().map(|feature| (feature.name, feature.is_on)).collect()))
    }
}
