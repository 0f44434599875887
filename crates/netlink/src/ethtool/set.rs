//! Turning a feature of an interface on or off, `ethtool -K`.

use super::{Ethtool, EthtoolError, HEADER, HEADER_NAME, Question, message, message::text};

const FEATURES_SET: Question = Question { command: 12, what: "features" };

/// `ETHTOOL_A_FEATURES_WANTED` and, nested in it, a set of named bits: those
/// listed are changed, to on where they have the value flag.
const WANTED: u16 = 3;
const BITS: u16 = 3;
const BIT: u16 = 1;
const BIT_NAME: u16 = 2;
const BIT_VALUE: u16 = 3;

impl Ethtool {
    /// Turns a feature, by the kernel's name (`rx-gro`), on or off. An error
    /// when it is not as asked afterwards.
    pub fn set_feature(&mut self, interface: &str, feature: &str, on: bool) -> Result<(), EthtoolError> {
        self.exchange(interface, FEATURES_SET, |out| {
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
        })?;
        if self.features(interface)?.get(feature) == Some(&on) {
            return Ok(());
        }
        Err(EthtoolError::NotSupported { interface: interface.to_owned(), what: FEATURES_SET.what })
    }
}
