//! Statements of nft(8) that mark connections by the gateway that they came by: the
//! same in the table of a live host and in its files.

use std::fmt::Write as _;

use clearstream_schema::routing::ConnectionMark;

/// Statements that mark new connections where they arrive.
pub fn arrivals(marks: &[ConnectionMark]) -> Vec<String> {
    let line = |mark: &ConnectionMark| {
        format!(
            "iifname \"{}\" ct state new ether saddr {} ct mark set {:#x} comment \"{}\"",
            mark.interface, mark.link_address, mark.mark, mark.gateway
        )
    };
    marks.iter().map(line).collect()
}

/// The marks, ascending as nft shows them, without those of others.
pub fn set(marks: &[ConnectionMark]) -> String {
    let mut numbers: Vec<u32> = marks.iter().map(|mark| mark.mark).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers.iter().map(|mark| format!("{mark:#x}")).collect::<Vec<_>>().join(", ")
}

/// The chains of the table: new connections are marked where they arrive, and
/// what leaves takes the mark of its connection when it is one of ours. The
/// output chain is of type `route`, which repeats the route lookup when the mark
/// changes (nft(8), CHAINS).
pub fn chains(marks: &[ConnectionMark]) -> String {
    let mut text =
        "\tchain arrive {\n\t\ttype filter hook prerouting priority mangle; policy accept;\n".to_owned();
    for line in arrivals(marks) {
        let _ = writeln!(text, "\t\t{line}");
    }
    let set = set(marks);
    // nft shows a set of one element without braces.
    let set = if set.contains(',') { format!("{{ {set} }}") } else { set };
    let _ = write!(
        text,
        "\t}}\n\tchain leave {{\n\t\ttype route hook output priority mangle; policy accept;\n\
         \t\tct mark {set} meta mark set ct mark\n\t}}\n"
    );
    text
}
