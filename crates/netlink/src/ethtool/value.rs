//! Reads and sets single numbers and switches of a driver, by their names in ethtool(8).

use clearstream_schema::indirection::{Indirection, ParseIndirectionError};

use super::{Ethtool, EthtoolError, HEADER, HEADER_NAME, Query, features, message, number, text};

/// A group of values with its requests (`ETHTOOL_MSG_*` of linux/ethtool_netlink.h).
pub(super) struct Group {
    name: &'static str,
    pub(super) get: Query,
    set: Query,
    pub(super) values: &'static [(&'static str, u16, Width)],
}

/// Encoding of a value in the attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    Number,
    Switch,
}

use Width::{Number, Switch};

pub(super) const COALESCE: Group = Group {
    name: "coalesce",
    get: Query { command: 19, what: "interrupt coalescing" },
    set: Query { command: 20, what: "interrupt coalescing" },
    values: &[
        ("rx-usecs", 2, Number),
        ("rx-frames", 3, Number),
        ("rx-usecs-irq", 4, Number),
        ("rx-frames-irq", 5, Number),
        ("tx-usecs", 6, Number),
        ("tx-frames", 7, Number),
        ("tx-usecs-irq", 8, Number),
        ("tx-frames-irq", 9, Number),
        ("stats-block-usecs", 10, Number),
        ("adaptive-rx", 11, Switch),
        ("adaptive-tx", 12, Switch),
        ("pkt-rate-low", 13, Number),
        ("rx-usecs-low", 14, Number),
        ("rx-frames-low", 15, Number),
        ("tx-usecs-low", 16, Number),
        ("tx-frames-low", 17, Number),
        ("pkt-rate-high", 18, Number),
        ("rx-usecs-high", 19, Number),
        ("rx-frames-high", 20, Number),
        ("tx-usecs-high", 21, Number),
        ("tx-frames-high", 22, Number),
        ("sample-interval", 23, Number),
        ("cqe-mode-tx", 24, Switch),
        ("cqe-mode-rx", 25, Switch),
    ],
};

const GROUPS: [Group; 4] = [
    Group {
        name: "rings",
        get: Query { command: 15, what: "rings" },
        set: Query { command: 16, what: "rings" },
        values: &[("rx", 6, Number), ("rx-mini", 7, Number), ("rx-jumbo", 8, Number), ("tx", 9, Number)],
    },
    Group {
        name: "channels",
        get: Query { command: 17, what: "channels" },
        set: Query { command: 18, what: "channels" },
        values: &[("rx", 6, Number), ("tx", 7, Number), ("other", 8, Number), ("combined", 9, Number)],
    },
    COALESCE,
    Group {
        name: "pause",
        get: Query { command: 21, what: "pause frames" },
        set: Query { command: 22, what: "pause frames" },
        values: &[("autoneg", 2, Switch), ("rx", 3, Switch), ("tx", 4, Switch)],
    },
];

const FEATURES: &str = "features";
/// Receive side scaling, and the table in it, in the syntax of [`Indirection`].
const RSS: &str = "rss";
const INDIRECTION: &str = "indirection";

fn find(group: &str, name: &str) -> Result<(&'static Group, u16, Width), String> {
    let found = GROUPS
        .iter()
        .find(|known| known.name == group)
        .ok_or_else(|| format!("no group \"{group}\": channels, rings, coalesce, features, pause, rss"))?;
    let value = found.values.iter().find(|(known, ..)| *known == name).ok_or_else(|| {
        let names: Vec<&str> = found.values.iter().map(|(known, ..)| *known).collect();
        format!("{group} has no \"{name}\": {}", names.join(", "))
    })?;
    Ok((found, value.1, value.2))
}

fn switched(value: &str) -> Result<bool, String> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("\"{value}\" is neither on nor off")),
    }
}

fn encode(width: Width, value: &str) -> Result<Vec<u8>, String> {
    match width {
        Number => {
            let number: u32 = value.parse().map_err(|_| format!("\"{value}\" is not a whole number"))?;
            Ok(number.to_ne_bytes().to_vec())
        }
        Switch => switched(value).map(|on| vec![u8::from(on)]),
    }
}

impl Ethtool {
    /// Validates group, name and value without a request to the driver.
    /// Groups are `channels`, `rings`, `coalesce`, `pause`, `features` and `rss`.
    pub fn check(group: &str, name: &str, value: &str) -> Result<(), String> {
        if group == RSS {
            return table(name, value).map(|_| ());
        }
        if group == FEATURES {
            features::single(name)?;
            return switched(value).map(|_| ());
        }
        let (_, _, width) = find(group, name)?;
        encode(width, value).map(|_| ())
    }

    /// A value, `64`, `on` or `off`; `None` when the driver does not have it.
    pub fn value(
        &mut self,
        interface: &str,
        group: &str,
        name: &str,
    ) -> Result<Option<String>, EthtoolError> {
        let on_off = |on: bool| (if on { "on" } else { "off" }).to_owned();
        if group == RSS {
            return self
                .indirection(interface)
                .map(|table| table.map(|table| Indirection::of(&table).to_string()));
        }
        if group == FEATURES {
            return Ok(self.features(interface)?.get(name).map(|&on| on_off(on)));
        }
        let (group, attribute, width) = find(group, name).map_err(not_settable(interface))?;
        let numbers = match self.numbers(interface, group.get) {
            Err(EthtoolError::NotSupported { .. }) => return Ok(None),
            other => other?,
        };
        Ok(numbers.get(&attribute).map(|&number| match width {
            Number => number.to_string(),
            Switch => on_off(number != 0),
        }))
    }

    /// Sets a value. The driver may round it; the caller reads it back.
    pub fn set_value(
        &mut self,
        interface: &str,
        group: &str,
        name: &str,
        value: &str,
    ) -> Result<(), EthtoolError> {
        if group == RSS {
            let table = table(name, value).map_err(not_settable(interface))?;
            return self.set_table(interface, &table);
        }
        if group == FEATURES {
            let feature = features::single(name).map_err(not_settable(interface))?;
            let on = switched(value).map_err(not_settable(interface))?;
            return self.set_feature(interface, feature, on);
        }
        let (group, attribute, width) = find(group, name).map_err(not_settable(interface))?;
        let value = encode(width, value).map_err(not_settable(interface))?;
        let changed = self.change(interface, group.set, |out| {
            message::nest(out, HEADER, |out| message::put(out, HEADER_NAME, &text(interface)));
            message::put(out, attribute, &value);
        });
        match (changed, number(&value)) {
            (Err(EthtoolError::NoFamily), Some(value)) => {
                self.set_number_by_ioctl(interface, group.get, (attribute, value))
            }
            (changed, _) => changed,
        }
    }
}

impl Ethtool {
    /// The indirection table; `None` for drivers without one.
    fn indirection(&mut self, interface: &str) -> Result<Option<Vec<u32>>, EthtoolError> {
        match self.rss(interface) {
            Ok(rss) => Ok(Some(rss.indirection).filter(|table| !table.is_empty())),
            Err(EthtoolError::NotSupported { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets the table. The kernel's default is set by a reset, so that it does not count as user-configured:
    /// a user-configured table is kept when channels are added and prevents their removal
    /// (net/ethtool/channels.c).
    fn set_table(&mut self, interface: &str, table: &Indirection) -> Result<(), EthtoolError> {
        let size = self.indirection(interface)?.map_or(0, |table| table.len());
        let queue_count = self.queue_count(interface);
        if matches!(table, Indirection::Equal(count) if Some(*count) == queue_count) {
            return self.set_indirection(interface, &[]);
        }
        let entries = table.entries(size).filter(|entries| !entries.is_empty()).ok_or_else(|| {
            not_settable(interface)(format!(
                "its indirection table has {size} entries, and \"{table}\" a different number"
            ))
        })?;
        self.set_indirection(interface, &entries)
    }
}

fn table(name: &str, value: &str) -> Result<Indirection, String> {
    if name != INDIRECTION {
        return Err(format!("{RSS} has no \"{name}\": {INDIRECTION}"));
    }
    value.parse().map_err(|error: ParseIndirectionError| error.to_string())
}

fn not_settable(interface: &str) -> impl Fn(String) -> EthtoolError {
    move |reason| EthtoolError::NotSettable { interface: interface.to_owned(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_found_before_a_request() {
        for (group, name, value, part) in [
            ("queues", "rx", "1", "no group \"queues\""),
            ("rings", "combined", "1", "rx, rx-mini, rx-jumbo, tx"),
            ("rings", "rx", "many", "not a whole number"),
            ("coalesce", "adaptive-rx", "1", "neither on nor off"),
            ("rss", "key", "00", "rss has no \"key\": indirection"),
            ("rss", "indirection", "all", "equal QUEUES"),
            ("features", "tx-tcp-segmentation", "yes", "neither on nor off"),
            ("features", "tcp-segmentation-offload", "on", "tx-tcp-segmentation"),
        ] {
            let message = Ethtool::check(group, name, value).unwrap_err();
            assert!(message.contains(part), "{message}");
        }
        assert_eq!(Ethtool::check("channels", "combined", "8"), Ok(()));
        assert_eq!(Ethtool::check("rss", "indirection", "0*64,1*64"), Ok(()));
        assert_eq!(Ethtool::check("features", "generic-receive-offload", "off"), Ok(()));
    }
}
