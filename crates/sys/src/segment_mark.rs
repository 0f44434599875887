//! A BPF program that records the GSO segment size of each received packet in its mark
//! (`BPF_PROG_TYPE_SCHED_CLS` at tcx, Linux 6.6).
//!
//! Source: linux/bpf.h; Documentation/bpf/standardization/instruction-set.rst.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

// linux/bpf.h: enum bpf_cmd, bpf_prog_type, bpf_attach_type, tcx_action_base.
const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
const BPF_TCX_INGRESS: u32 = 46;
const TCX_NEXT: i32 = -1;
// Offsets in struct __sk_buff.
const SKB_MARK: i16 = 8;
const SKB_GSO_SIZE: i16 = 176;

/// Bit of the mark that shows that the program ran.
pub const SEGMENT_MARK: u32 = 0x1_0000;
/// Additional bit, where requested.
pub const SECOND_MARK: u32 = 0x2_0000;
/// Bits of the mark with the segment size in bytes of payload; 0: not aggregated.
pub const SEGMENT_SIZE_MASK: u32 = 0xffff;

/// struct bpf_insn.
#[repr(C)]
#[derive(Clone, Copy)]
struct Instruction {
    code: u8,
    /// Destination in the low four bits, source in the high ones.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// The part of union bpf_attr that `BPF_PROG_LOAD` reads; what follows is zero.
#[repr(C)]
struct Load {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
}

/// The part that `BPF_LINK_CREATE` reads.
#[repr(C)]
struct Attach {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
    relative: u64,
    expected_revision: u64,
}

/// The attached program; it is detached when the value is dropped.
#[derive(Debug)]
pub struct SegmentMark {
    _link: OwnedFd,
}

impl SegmentMark {
    /// Attaches to the interface of this index in the calling thread's network namespace. The mark of
    /// received packets is the segment size and [`SEGMENT_MARK`], and [`SECOND_MARK`] where `second`. Needs
    /// `CAP_NET_ADMIN` and `CAP_BPF`.
    pub fn attach(interface: u32, second: bool) -> io::Result<Self> {
        let mark = SEGMENT_MARK | if second { SECOND_MARK } else { 0 };
        let program = load(&instructions(mark.cast_signed()))?;
        let attach = Attach {
            program: program.as_raw_fd().cast_unsigned(),
            interface,
            attach_type: BPF_TCX_INGRESS,
            flags: 0,
            relative: 0,
            expected_revision: 0,
        };
        // The link holds the program.
        Ok(Self { _link: bpf(BPF_LINK_CREATE, &attach)? })
    }
}

/// `skb->mark = skb->gso_size | mark; return TCX_NEXT`
fn instructions(mark: i32) -> [Instruction; 5] {
    let of = |code, registers, offset, immediate| Instruction { code, registers, offset, immediate };
    [
        of(0x61, 0x12, SKB_GSO_SIZE, 0),
        of(0x47, 0x02, 0, mark),
        of(0x63, 0x21, SKB_MARK, 0),
        of(0xb7, 0x00, 0, TCX_NEXT),
        of(0x95, 0x00, 0, 0),
    ]
}

fn load(instructions: &[Instruction]) -> io::Result<OwnedFd> {
    let load = Load {
        program_type: BPF_PROG_TYPE_SCHED_CLS,
        instruction_count: u32::try_from(instructions.len()).unwrap_or(u32::MAX),
        instructions: instructions.as_ptr() as u64,
        license: c"Dual MIT/GPL".as_ptr() as u64,
    };
    bpf(BPF_PROG_LOAD, &load)
}

/// A command that returns a descriptor.
fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads as many bytes as the structure has (what it
    // knows beyond them counts as zero), and memory that pointers in it name,
    // which outlives the call.
    let fd = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), std::mem::size_of::<T>())
    };
    let fd = i32::try_from(fd).unwrap_or(-1);
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::{Holder, NamespaceSet};

    #[test]
    fn root_program_is_loaded_and_detached_with_its_value() {
        let holder = Holder::start().expect("namespaces");
        let set = NamespaceSet::of_process(holder.pid()).expect("proc");
        // Loopback has index 1 in every namespace.
        let mark = set.run(|| SegmentMark::attach(1, true)).expect("entered");
        match mark {
            Ok(mark) => drop(mark),
            // EINVAL, ENOSYS, EOPNOTSUPP: a kernel before 6.6 or without BPF.
            Err(error) => assert!(matches!(error.raw_os_error(), Some(22 | 38 | 95)), "{error}"),
        }
        let none = set.run(|| SegmentMark::attach(4_000, false)).expect("entered");
        assert!(none.is_err());
    }
}
