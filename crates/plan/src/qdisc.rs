//! Notation of a root qdisc in a plan: that of tc, with `default` before one that
//! the kernel created by itself and recreates when ours is deleted.

use clearstream_netlink::{Discipline, Root};
use clearstream_schema::plan::DEFAULT_QDISC;
pub(crate) use clearstream_schema::plan::is_default_qdisc as is_default;

/// The text of the effective qdisc.
pub(crate) fn text(root: &Root) -> String {
    let before = if root.is_default { DEFAULT_QDISC } else { "" };
    format!("{before}{}", root.text)
}

/// Whether `live` matches `wanted`: the same kind, and every parameter that
/// `wanted` names. Of two defaults the kind does not matter: the kernel selects it,
/// by `net.core.default_qdisc` and by whether the interface is up (`noop` while it
/// is down).
pub(crate) fn same(wanted: &str, live: &str) -> bool {
    if is_default(wanted) {
        return is_default(live);
    }
    let live = live.strip_prefix(DEFAULT_QDISC).unwrap_or(live);
    match (wanted.parse::<Discipline>(), live.parse::<Discipline>()) {
        (Ok(wanted), Ok(live)) => live.has(&wanted),
        _ => wanted == live,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_counts() {
        assert!(
            same("fq", "fq limit 10000p maxrate 1gbit") && same("fq maxrate 1000mbit", "fq maxrate 1gbit")
        );
        assert!(!same("fq maxrate 2gbit", "fq maxrate 1gbit") && !same("fq", "fq_codel"));
        assert!(same("noqueue", "default noqueue") && same("default noop", "default noqueue"));
        assert!(!same("default noqueue", "tbf rate 1gbit burst 1000b limit 1000b"));
    }
}
