//! PCI configuration space: the capability walk terminates, and the part kept
//! for a capture decodes like the whole.
#![no_main]

use clearstream_host::parse::pci;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|config: &[u8]| {
    let kept = pci::without_serials(config);
    assert!(kept.len() <= config.len());
    let found = pci::device_control(config);
    if let Ok(found) = found
        && config.len() <= 256
    {
        assert_eq!(pci::device_control(&kept), Ok(found));
    }
    if let Ok(text) = std::str::from_utf8(config) {
        let _ = pci::link_speed(text);
        let _ = pci::link_width(text);
        let _ = pci::is_address(text);
    }
});
