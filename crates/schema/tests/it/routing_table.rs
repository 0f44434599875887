//! Tests of `routing/table`.

use clearstream_schema::routing::table::TableText;

/// As nft 1.0.6 shows a table that was given on one line.
#[test]
fn one_table_in_two_spellings() {
    let shown = "table inet marks {\n\tchain output {\n\t\ttype route hook output priority mangle; \
                 policy accept;\n\t\tct mark != 0x00000000 meta mark set ct mark\n\t}\n}\n";
    let shown = TableText::shown(shown);
    assert_eq!(
        shown,
        "chain output { type route hook output priority mangle; policy accept; \
         ct mark != 0x00000000 meta mark set ct mark; };"
    );
    let read = |text: &str| text.parse::<TableText>();
    let shown: TableText = shown.parse().unwrap();
    assert_eq!(
        read("chain output { type route hook output priority -150; ct mark != 0 meta mark set ct mark }"),
        Ok(shown.clone())
    );
    assert_ne!(read("chain output { type route hook output priority mangle; }"), Ok(shown));
    assert_eq!(read("ct mark { 0x1b59, 0x1b5a } accept"), read("ct mark { 0x00001b59, 0x00001b5a } accept"));
}

/// Texts by which a table would be left.
#[test]
fn a_text_stays_within_its_table() {
    for text in [
        "} flush ruleset; table inet b {",
        "comment \"{\"; } flush ruleset; table inet b { comment \"}\";",
        "chain a { } # }",
        "include \"/etc/shadow\";",
        "chain a { include \"/tmp/x\"; }",
        "define x = 1;",
        "chain a { ip saddr $x drop; }",
        "chain a {",
        "comment \"a",
        "chain a { } \r flush ruleset",
    ] {
        assert!(text.parse::<TableText>().is_err(), "{text:?}");
    }
    let ours = "chain arrive { type filter hook prerouting priority mangle; policy accept; iifname \"eth0\" \
                ct state new ether saddr 02:00:00:00:00:01 ct mark set 0x1b59 comment \"gw1\"; };";
    assert_eq!(ours.parse::<TableText>().map(|text| text.to_string()).as_deref(), Ok(ours));
}
