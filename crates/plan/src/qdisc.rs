//! How a plan spells a root qdisc: as tc does, with `default` before one that
//! the kernel made by itself and makes again when ours is deleted.

use clearstream_netlink::{Discipline, Root};

const DEFAULT: &str = "default ";

/// The text of what is in force.
pub(crate) fn text(root: &Root) -> String {
    let before = if root.is_default { DEFAULT } else { "" };
    format!("{before}{}", root.text)
}

/// The text names a qdisc that the kernel makes by itself.
pub(crate) fn is_default(text: &str) -> bool {
    text.starts_with(DEFAULT)
}

/// Whether `live` is as `wanted` asks: the same kind, and every parameter that
/// `wanted` names. Only an operator who asks for `default` minds who made it.
pub(crate) fn same(wanted: &str, live: &str) -> bool {
    let (wanted_plain, live_plain) =
        (wanted.strip_prefix(DEFAULT).unwrap_or(wanted), live.strip_prefix(DEFAULT).unwrap_or(live));
    if is_default(wanted) && !is_default(live) {
        return false;
    }
    match (wanted_plain.parse::<Discipline>(), live_plain.parse::<Discipline>()) {
        (Ok(wanted), Ok(live)) => live.has(&wanted),
        _ => wanted_plain == live_plain,
    }
}
