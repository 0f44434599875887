//! PCI data: configuration space (PCI Local Bus Specification 3.0 section 6.7, PCI Express
//! Base Specification section 7.5.3) and the link attributes of sysfs.

use super::ParseError;

/// Offsets in the configuration header.
const STATUS: usize = 0x06;
const CAPABILITIES_POINTER: usize = 0x34;
/// Status bit 4: the device has a capability list.
const HAS_CAPABILITIES: u8 = 0x10;
/// Identifier of the PCI Express capability and its Device Control register.
const EXPRESS: u8 = 0x10;
const DEVICE_CONTROL: usize = 8;
/// The header; capabilities lie above it and within 256 bytes.
const HEADER_BYTES: usize = 0x40;
/// At most 48 capabilities of 4 bytes fit into 192 bytes.
const MOST_CAPABILITIES: usize = 48;

/// Sizes configured in the Device Control register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceControl {
    /// Largest payload of a packet, bits 7:5.
    pub max_payload_bytes: u32,
    /// Largest read request, bits 14:12.
    pub max_read_request_bytes: u32,
}

/// One capability: identifier and offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Capability {
    /// Identifier.
    id: u8,
    /// Offset in configuration space.
    offset: usize,
}

/// Walks the capability list. Fails when it points outside the bytes read or loops.
fn capabilities(config: &[u8]) -> Result<Vec<Capability>, ParseError> {
    let Some(header) = config.first_chunk::<HEADER_BYTES>() else {
        return Err(ParseError::new(
            "a configuration header of 64 bytes",
            &format!("{} bytes", config.len()),
        ));
    };
    let mut found = Vec::new();
    if header[STATUS] & HAS_CAPABILITIES == 0 {
        return Ok(found);
    }
    let mut offset = usize::from(header[CAPABILITIES_POINTER] & !3);
    while offset != 0 {
        let Some(&[id, next]) = config.get(offset..offset + 2) else {
            // The kernel returns the rest to privileged readers only.
            return Err(ParseError::new(
                "the whole configuration space (root reads it)",
                &format!("{} bytes", config.len()),
            ));
        };
        if offset < HEADER_BYTES || found.len() == MOST_CAPABILITIES {
            return Err(ParseError::new("a capability list", &format!("a loop through {offset:#x}")));
        }
        found.push(Capability { id, offset });
        offset = usize::from(next & !3);
    }
    Ok(found)
}

/// Device Control of the PCI Express capability; `None` for a device without.
pub fn device_control(config: &[u8]) -> Result<Option<DeviceControl>, ParseError> {
    let Some(express) = capabilities(config)?.into_iter().find(|capability| capability.id == EXPRESS) else {
        return Ok(None);
    };
    let at = express.offset + DEVICE_CONTROL;
    let Some(&[low, high]) = config.get(at..at + 2) else {
        return Err(ParseError::new("a Device Control register", &format!("{} bytes", config.len())));
    };
    let control = u16::from_le_bytes([low, high]);
    // 128 << 6 and 128 << 7 are reserved encodings.
    let size = |bits: u16| if bits <= 5 { Ok(128u32 << bits) } else { Err(bits) };
    match (size(control >> 5 & 7), size(control >> 12 & 7)) {
        (Ok(max_payload_bytes), Ok(max_read_request_bytes)) => {
            Ok(Some(DeviceControl { max_payload_bytes, max_read_request_bytes }))
        }
        _ => Err(ParseError::new("sizes of 128 to 4096 bytes", &format!("Device Control {control:#06x}"))),
    }
}

/// Zeroes the configuration space except for the header, the capability list and the PCI Express capability:
/// vital product data and extended capabilities carry serial numbers.
pub fn without_serials(config: &[u8]) -> Vec<u8> {
    let mut kept = vec![0; config.len().min(256)];
    let mut keep = |from: usize, count: usize| {
        let end = (from + count).min(kept.len());
        if let (Some(into), Some(bytes)) = (kept.get_mut(from..end), config.get(from..end)) {
            into.copy_from_slice(bytes);
        }
    };
    keep(0, HEADER_BYTES);
    for capability in capabilities(config).unwrap_or_default() {
        // Version 2 of the PCI Express capability is 0x3c bytes long.
        keep(capability.offset, if capability.id == EXPRESS { 0x3c } else { 2 });
    }
    kept
}

/// `8.0 GT/s PCIe` (older kernels: `8 GT/s`); `None` for `Unknown`.
pub fn link_speed(text: &str) -> Result<Option<f64>, ParseError> {
    let text = text.trim();
    if text.starts_with("Unknown") {
        return Ok(None);
    }
    let number = text.split_once(" GT/s").and_then(|(number, _)| number.parse::<f64>().ok());
    match number {
        Some(speed) if speed.is_finite() && speed > 0.0 => Ok(Some(speed)),
        _ => Err(ParseError::new("a link speed such as 8.0 GT/s PCIe", text)),
    }
}

/// Lanes; `None` for 0 (link down) and 255 (the kernel's "unknown").
pub fn link_width(text: &str) -> Result<Option<u32>, ParseError> {
    let text = text.trim();
    match text.trim_start_matches('x').parse() {
        Ok(0 | 255) => Ok(None),
        Ok(lanes @ 1..=64) => Ok(Some(lanes)),
        _ => Err(ParseError::new("a number of lanes", text)),
    }
}

/// `0000:3b:00.0`: domain of four or more digits, bus, device, function.
pub fn is_address(text: &str) -> bool {
    let hexadecimal = |part: &str, least: usize, most: usize| {
        (least..=most).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let Some((slot, function)) = text.split_once('.') else { return false };
    let mut parts = slot.splitn(3, ':');
    let (domain, bus, device) = (parts.next(), parts.next(), parts.next());
    domain.is_some_and(|part| hexadecimal(part, 4, 8))
        && bus.is_some_and(|part| hexadecimal(part, 2, 2))
        && device.is_some_and(|part| hexadecimal(part, 2, 2))
        && hexadecimal(function, 1, 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Power management at 0x40, MSI-X at 0x70, PCI Express at 0xa0, as on an
    /// Intel 82576; Device Control 0x2810 is MPS 128, MRRS 512 (`lspci -vv`).
    fn config(control: u16) -> Vec<u8> {
        let mut config = vec![0; 256];
        config[0x06] = 0x10;
        config[0x34] = 0x40;
        config[0x40..0x42].copy_from_slice(&[0x01, 0x70]);
        config[0x70..0x72].copy_from_slice(&[0x11, 0xa0]);
        config[0x74] = 0x99;
        config[0xa0..0xa2].copy_from_slice(&[0x10, 0x00]);
        config[0xa8..0xaa].copy_from_slice(&control.to_le_bytes());
        config
    }

    #[test]
    fn reads_device_control() {
        let found = device_control(&config(0x2810)).unwrap().unwrap();
        assert_eq!((found.max_payload_bytes, found.max_read_request_bytes), (128, 512));
        let found = device_control(&config(0x5930)).unwrap().unwrap();
        assert_eq!((found.max_payload_bytes, found.max_read_request_bytes), (256, 4096));
    }

    #[test]
    fn distinguishes_no_capability_from_no_permission() {
        let mut conventional = config(0x2810);
        conventional[0x06] = 0;
        assert_eq!(device_control(&conventional), Ok(None));
        let message = device_control(&config(0x2810)[..64]).unwrap_err().to_string();
        assert!(message.contains("root") && message.contains("64 bytes"), "{message}");
        assert!(device_control(&[0; 10]).is_err());
    }

    #[test]
    fn ends_on_a_list_that_loops_or_points_into_the_header() {
        let mut looped = config(0x2810);
        looped[0x71] = 0x40;
        assert!(device_control(&looped).unwrap_err().to_string().contains("loop"));
        looped[0x71] = 0x04;
        assert!(device_control(&looped).is_err());
        assert!(device_control(&config(0xffff)).is_err());
    }

    #[test]
    fn keeps_only_what_is_used() {
        let config = config(0x2810);
        let mut long = config.clone();
        long.extend([0xaa; 3840]);
        let kept = without_serials(&long);
        assert_eq!((kept.len(), kept[0x74]), (256, 0));
        assert_eq!(device_control(&kept), device_control(&config));
        assert_eq!(capabilities(&kept), capabilities(&config));
        assert_eq!(without_serials(&config[..64]), &config[..64]);
    }

    #[test]
    fn reads_link_attributes() {
        assert_eq!(link_speed("5.0 GT/s PCIe\n"), Ok(Some(5.0)));
        assert_eq!(link_speed("2.5 GT/s"), Ok(Some(2.5)));
        assert_eq!(link_speed("Unknown speed"), Ok(None));
        assert!(
            link_speed("fast").is_err() && link_speed("-1 GT/s").is_err() && link_speed("NaN GT/s").is_err()
        );
        assert_eq!(
            (link_width("8\n"), link_width("255"), link_width("0")),
            (Ok(Some(8)), Ok(None), Ok(None))
        );
        assert!(link_width("").is_err() && link_width("9999").is_err());
    }

    #[test]
    fn recognises_an_address() {
        assert!(is_address("0000:3b:00.0") && is_address("10000:e1:00.0"));
        for text in ["pci0000:30", "virtio3", "eth0", "0000:3b:00.0.1", "0000:3b.00:0", "0000:3g:00.0", ""] {
            assert!(!is_address(text), "{text}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(config in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = device_control(&config);
            prop_assert!(without_serials(&config).len() <= 256);
        }
    }
}
