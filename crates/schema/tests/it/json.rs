//! Documents as JSON are what `serde_json` itself makes of them.

use clearstream_schema::json;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Document {
    // Not in the order of the alphabet, which maps of JSON have.
    second: f64,
    first: u64,
    texts: Vec<String>,
    #[serde(flatten)]
    more: More,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum More {
    None {},
    Nested { signed: i64, inner: Vec<Option<bool>> },
}

fn documents() -> impl Strategy<Value = Document> {
    let more = prop_oneof![
        Just(More::None {}),
        (any::<i64>(), any::<Vec<Option<bool>>>()).prop_map(|(signed, inner)| More::Nested { signed, inner }),
    ];
    let finite = any::<f64>().prop_filter("JSON has no others", |number| number.is_finite());
    (finite, any::<u64>(), any::<Vec<String>>(), more).prop_map(|(second, first, texts, more)| Document {
        second,
        first,
        texts,
        more,
    })
}

proptest! {
    #[test]
    fn every_form_is_the_one_of_serde_json_and_reads_back(document in documents()) {
        let text = json::to_string(&document).unwrap();
        prop_assert_eq!(&text, &serde_json::to_string(&document).unwrap());
        let pretty = json::to_string_pretty(&document).unwrap();
        prop_assert_eq!(&pretty, &serde_json::to_string_pretty(&document).unwrap());
        let value = json::to_value(&document).unwrap();
        prop_assert_eq!(&value, &serde_json::to_value(&document).unwrap());
        let back: [Result<Document, _>; 3] =
            [json::from_str(&text), json::from_slice(pretty.as_bytes()), json::from_value(value)];
        for back in back {
            prop_assert_eq!(back.unwrap(), document.clone());
        }
    }
}

#[test]
fn text_that_ends_early_is_told_from_a_wrong_document() {
    let early = json::from_str::<Document>("{\"first\": 1").unwrap_err();
    assert!(early.is_eof(), "{early}");
    let wrong = json::from_str::<Document>("{\"first\": \"one\"}").unwrap_err();
    assert!(wrong.is_data(), "{wrong}");
    let more = json::from_str::<u64>("1 2").unwrap_err();
    assert!(more.is_syntax(), "{more}");
}
