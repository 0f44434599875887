//! Enables or disables a feature of an interface, `ethtool -K`.

use super::{Ethtool, EthtoolError, HEADER, HEADER_NAME, Query, control_error, message, message::text};

const FEATURES_SET: Query = Query { command: 12, what: "features" };

/// `ETHTOOL_A_FEATURES_WANTED` and, nested in it, a set of named bits: those
/// listed are changed, to on where they have the value flag.
const WANTED: u16 = 3;
const BITS: u16 = 3;
const BIT: u16 = 1;
const BIT_NAME: u16 = 2;
const BIT_VALUE: u16 = 3;

impl Ethtool {
    /// Enables or disables a feature, by the kernel's name (`rx-gro`). An error when the effective state
    /// differs afterwards.
    pub fn set_feature(&mut self, interface: &str, feature: &str, on: bool) -> Result<(), EthtoolError> {
        let requested = self.exchange(interface, FEATURES_SET, |out| {
            message::nest(out, HEADER, |out| message::put(out, HEADER_NAME, &text(interface)));
            message::nest(out, WANTED, |out| {
                message::nest(out, BITS, |out| {
                    message::nest(out, BIT, |out| {
                        message::put(out, BIT_NAME, &text(feature));
                        if on {
                            message::put(out, BIT_VALUE, &[]);
                        }
                    });
                });
            });
        });
        match requested {
            Err(EthtoolError::NoFamily) => {
                let set = self.control.set_feature(interface, feature, on);
                set.map_err(control_error(interface, FEATURES_SET.what))?;
            }
            other => drop(other?),
        }
        if self.features(interface)?.get(feature) == Some(&on) {
            return Ok(());
        }
        Err(EthtoolError::NotSupported { interface: interface.to_owned(), what: FEATURES_SET.what })
    }
}
