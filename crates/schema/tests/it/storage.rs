//! Tests of `storage`.

use clearstream_schema::storage::StorageStatistics;

#[test]
fn statistics_are_those_of_the_values() {
    let found = StorageStatistics::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
    assert_eq!((found.max, found.min, found.mean, found.standard_deviation), (9.0, 2.0, 5.0, 2.0));
    assert_eq!(StorageStatistics::of(&[]), None);
}
