//! Tests of `dscp`.

use clearstream_schema::Dscp;

/// The recommended values of RFC 4594 figure 3, RFC 8622 and RFC 5865.
#[test]
fn names_are_those_of_the_standards() {
    for (name, point) in [
        ("CS6", 0b11_0000),
        ("EF", 0b10_1110),
        ("CS5", 0b10_1000),
        ("AF41", 0b10_0010),
        ("AF43", 0b10_0110),
        ("AF31", 0b01_1010),
        ("AF22", 0b01_0100),
        ("AF11", 0b00_1010),
        ("AF13", 0b00_1110),
        ("DF", 0),
        ("CS1", 0b00_1000),
        ("LE", 0b00_0001),
        ("VA", 0b10_1100),
        ("46", 46),
        ("63", 63),
    ] {
        assert_eq!(name.parse(), Ok(Dscp(point)), "{name}");
    }
    // RFC 2597: AFxy is 8x + 2y.
    for (class, drop) in [(1, 1), (2, 3), (3, 2), (4, 1)] {
        assert_eq!(format!("af{class}{drop}").parse(), Ok(Dscp(8 * class + 2 * drop)));
    }
}

#[test]
fn what_is_neither_is_refused_with_the_names() {
    for text in ["64", "-1", "af14", "af51", "cs8", "expedited", ""] {
        let error = text.parse::<Dscp>().unwrap_err().to_string();
        assert!(error.contains("0 to 63") && error.contains("ef, cs0"), "{error}");
    }
    assert!(serde_json::from_str::<Dscp>("64").is_err());
}

#[test]
fn documents_carry_the_number_and_both_are_read() {
    assert_eq!(serde_json::to_string(&Dscp(46)).unwrap(), "46");
    assert_eq!(serde_json::from_str::<Dscp>("46").unwrap(), Dscp(46));
    assert_eq!(serde_json::from_str::<Dscp>("\"ef\"").unwrap(), Dscp(46));
    assert_eq!(
        (Dscp(46).to_string(), Dscp(0).to_string(), Dscp(3).to_string()),
        ("ef".into(), "cs0".into(), "3".into())
    );
}
