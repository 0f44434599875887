//! Records of version 1 give the report that the program of their time gave,
//! number for number: the texts beside the records were written by that program.
#![allow(clippy::unwrap_used)]

use std::{fs, path::Path};

use clearstream_record::Reader;
use clearstream_report::{csv, markdown};

#[test]
fn reports_of_old_records_are_what_they_were() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/records/v1");
    for name in ["clearstream-40ge", "native-client"] {
        let reader = Reader::open(&folder.join(name)).unwrap();
        assert_eq!(reader.version(), 1);
        let before = |file: &str| fs::read_to_string(folder.join(format!("{name}.{file}"))).unwrap();
        assert_eq!(markdown(&reader).unwrap(), before("report.md"), "{name}");
        assert_eq!(csv(&reader).unwrap(), before("trials.csv"), "{name}");
    }
}
