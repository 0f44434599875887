//! Connection marks in nftables files: `iifname "ib1" ct state new ether saddr
//! 02:00:00:00:00:01 ct mark set 7001 comment "gw1"`.

use clearstream_schema::routing::ConnectionMark;

use super::{Source, gathering::Gathering, values};

pub(super) fn read(source: &Source, gathering: &mut Gathering) {
    for (line, text) in (1..).zip(source.text.lines()) {
        let text = text.trim();
        if text.starts_with('#') || !text.contains("ct mark set") {
            // What restores the marks on the way out and the frame of tables
            // and chains go with the marks themselves.
            continue;
        }
        match mark(text) {
            Some(mark) => gathering.routing.connection_marks.push(mark),
            None => gathering.unread(
                &source.path,
                line,
                text,
                "not a mark by interface and link address: iifname \"ib1\" ... ether saddr ADDRESS ct mark set NUMBER",
            ),
        }
    }
}

fn mark(text: &str) -> Option<ConnectionMark> {
    let words: Vec<&str> = text.split_whitespace().map(|word| word.trim_matches(['"', ';'])).collect();
    let behind = |name: &[&str]| {
        let at = words.windows(name.len()).position(|window| window == name)?;
        words.get(at + name.len()).copied()
    };
    let interface = behind(&["iifname"]).or_else(|| behind(&["iif"]))?;
    let link_address = values::link_address(behind(&["ether", "saddr"])?)?;
    let mark = values::number(behind(&["ct", "mark", "set"])?)?;
    let gateway = behind(&["comment"]).unwrap_or_default();
    Some(ConnectionMark { interface: interface.to_owned(), link_address, gateway: gateway.to_owned(), mark })
}
