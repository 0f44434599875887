//! Protection domains and memory regions.

use std::{
    ffi::{c_int, c_uint, c_void},
    io::{Error, ErrorKind},
    ptr::NonNull,
};

use clearstream_iwarp::{
    memory::{
        Access, MemoryError,
        raw::{self, Keeping},
    },
    stag::Stag,
    verbs::ProtectionDomain,
};

use crate::{
    abi::{
        IBV_ACCESS_HUGETLB, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_MW_BIND, IBV_ACCESS_OPTIONAL_RANGE,
        IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_RIGHTS,
        IBV_ACCESS_ZERO_BASED, ibv_context, ibv_mr, ibv_pd,
    },
    context::context,
    handle::{Users, allocate, take},
    report::{not_offered, notice, null},
    runtime::runtime,
    settings::Memory,
};

/// A protection domain of a program.
#[repr(C)]
pub struct Domain {
    abi: ibv_pd,
    /// Domain of the RNIC.
    pub domain: ProtectionDomain,
    /// Memory, queue pairs and shared receive queues of it.
    pub users: Users,
}

/// Allocates a domain.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_alloc_pd(_context: *mut ibv_context) -> *mut ibv_pd {
    let Some(runtime) = runtime() else { return null(libc::EPERM) };
    let domain = ProtectionDomain::new(&runtime.rnic);
    let abi = ibv_pd { context: context(), handle: domain.id().0 };
    allocate(Domain { abi, domain, users: Users::default() }).cast()
}

/// Deallocates a domain that has no objects.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: of `ibv_alloc_pd`.
    if unsafe { domain(pd) }.users.any() {
        return libc::EBUSY;
    }
    // SAFETY: as above, and not used after this.
    drop(unsafe { take(pd.cast::<Domain>()) });
    0
}

/// Returns the object of a domain.
///
/// # Safety
/// `pd` is of `ibv_alloc_pd`.
pub unsafe fn domain<'a>(pd: *mut ibv_pd) -> &'a Domain {
    // SAFETY: as required of the caller.
    unsafe { &*pd.cast::<Domain>() }
}

fn rights(access: c_uint) -> Option<Access> {
    let known = IBV_ACCESS_RIGHTS | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE;
    if access & !known != 0 {
        return None;
    }
    let pairs = [
        (IBV_ACCESS_LOCAL_WRITE, Access::LOCAL_WRITE),
        (IBV_ACCESS_REMOTE_WRITE, Access::REMOTE_WRITE),
        (IBV_ACCESS_REMOTE_READ, Access::REMOTE_READ),
        (IBV_ACCESS_REMOTE_ATOMIC, Access::REMOTE_ATOMIC),
        (IBV_ACCESS_MW_BIND, Access::BIND_WINDOW),
        (IBV_ACCESS_ZERO_BASED, Access::ZERO_BASED),
    ];
    let granted = pairs.iter().filter(|(bit, _)| access & bit != 0).map(|(_, right)| *right);
    Some(granted.fold(Access::NONE, |all, right| all | right))
}

fn code(error: &MemoryError) -> c_int {
    match error {
        MemoryError::NotPinned { .. } => libc::ENOMEM,
        MemoryError::Inaccessible { .. } => libc::EFAULT,
        _ => libc::EINVAL,
    }
}

/// Says once why pages are not held, where that is not the program's choice of memory.
fn say_what_is_not_protected(why: &Error) {
    let reason = match (why.kind(), why.raw_os_error()) {
        // Asked for.
        (ErrorKind::Unsupported, None) => return,
        // A mapping of a file, or one that cannot be written: no card holds it.
        (_, Some(libc::EFAULT | libc::EOPNOTSUPP)) => return,
        (ErrorKind::QuotaExceeded, None) => "there are more than 16384 registrations".to_owned(),
        (_, Some(libc::ENOMEM)) => "the limit of locked memory is too low: raise it (ulimit -l)".to_owned(),
        _ => format!("io_uring cannot be used here ({why})"),
    };
    notice(&format!(
        "registered memory is checked, not held: {reason}. A peer may reach other memory that the program maps at \
         the address of memory it gave up while it was registered"
    ));
}

/// Returns the tag of the memory, after the checks of the kernel.
///
/// # Safety
/// `pd` exists; memory that is trusted is there until it is deregistered.
unsafe fn tag(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    rights: Access,
) -> Result<Stag, c_int> {
    let runtime = runtime().ok_or(libc::EINVAL)?;
    // As the kernel answers (drivers/infiniband/sw/siw/siw_verbs.c: siw_reg_user_mr).
    if length == 0 {
        return Err(libc::EINVAL);
    }
    let base = NonNull::new(addr.cast()).ok_or(libc::EFAULT)?;
    // SAFETY: `pd` is of `ibv_alloc_pd`.
    let (domain, table) = (unsafe { domain(pd) }.domain.id(), runtime.rnic.memory());
    let keeping = match runtime.settings.memory {
        Memory::Held => Keeping::Held,
        Memory::Checked => Keeping::Checked,
        // SAFETY: as required of the caller.
        Memory::Trusted => unsafe {
            let tag = raw::register(table, domain, base, length, iova, rights, 0, None);
            return tag.map_err(|error| code(&error));
        },
    };
    let (tag, not_held) =
        raw::register_untrusted(table, domain, base.as_ptr(), length, iova, rights, keeping)
            .map_err(|error| code(&error))?;
    if let Some(why) = not_held {
        say_what_is_not_protected(&why);
    }
    Ok(tag)
}

/// # Safety
/// As for [`tag`].
unsafe fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    let Some(rights) = rights(access) else { return null(libc::EINVAL) };
    // Remote writers write for the owner too: local write is demanded with it.
    let writes = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    if access & writes != 0 && access & IBV_ACCESS_LOCAL_WRITE == 0 {
        return null(libc::EINVAL);
    }
    // SAFETY: as required of the caller.
    match unsafe { tag(pd, addr, length, iova, rights) } {
        Ok(Stag(tag)) => {
            // SAFETY: as above.
            unsafe { domain(pd) }.users.add();
            let context = context();
            allocate(ibv_mr { context, pd, addr, length, handle: tag >> 8, lkey: tag, rkey: tag })
        }
        Err(code) => null(code),
    }
}

/// Registers memory.
///
/// # Safety
/// [The contract of this library](crate#safety); memory that is trusted is there until it is deregistered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the program's contract.
    unsafe { register(pd, addr, length, addr.addr() as u64, access.cast_unsigned()) }
}

/// Registers memory under another address.
///
/// # Safety
/// As for [`ibv_reg_mr`]; `iova` is a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the program's contract.
    unsafe { register(pd, addr, length, iova, access.cast_unsigned()) }
}

/// The same with optional access flags.
///
/// # Safety
/// As for [`ibv_reg_mr`]; `iova` is a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: the program's contract.
    unsafe { register(pd, addr, length, iova, access) }
}

/// The beginning of `struct ibv_mr_init_attr` (verbs.h of rdma-core 65), whose other members are for memory without an
/// address.
#[repr(C)]
pub struct MemoryAttributes {
    length: usize,
    access: c_int,
    comp_mask: u64,
    iova: u64,
    addr: *mut c_void,
}

/// Members of [`MemoryAttributes`] that are set (`enum ibv_mr_init_attr_mask`).
const MASK_IOVA: u64 = 1;
const MASK_ADDR: u64 = 1 << 1;
/// A buffer of `ibv_alloc_buf`, which is ordinary memory here.
const MASK_BUF: u64 = 1 << 5;

/// Registers memory as the attributes say.
///
/// # Safety
/// As for [`ibv_reg_mr`]; the attributes are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_ex(pd: *mut ibv_pd, attributes: *const MemoryAttributes) -> *mut ibv_mr {
    // SAFETY: the program's contract.
    let of = unsafe { &*attributes };
    if of.comp_mask & !(MASK_IOVA | MASK_ADDR | MASK_BUF) != 0 {
        not_offered("ibv_reg_mr_ex of a file or a handle", "register memory by its address");
        return null(libc::EOPNOTSUPP);
    }
    if of.comp_mask & MASK_ADDR == 0 {
        return null(libc::EINVAL);
    }
    let iova = if of.comp_mask & MASK_IOVA != 0 { of.iova } else { of.addr.addr() as u64 };
    // SAFETY: the program's contract.
    unsafe { register(pd, of.addr, of.length, iova, of.access.cast_unsigned()) }
}

/// Registers a buffer of `ibv_alloc_buf`, which is ordinary memory here.
///
/// # Safety
/// As for [`ibv_reg_mr`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_buf_mr(
    pd: *mut ibv_pd,
    _buffer: *mut c_void,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the program's contract.
    unsafe { register(pd, addr, length, addr.addr() as u64, access.cast_unsigned()) }
}

/// Deregisters memory: returns when nothing uses it any more.
///
/// # Safety
/// [The contract of this library](crate#safety).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    let Some(runtime) = runtime() else { return libc::EPERM };
    // SAFETY: of a registration, and not used after this.
    let tag = Stag(unsafe { (*mr).lkey });
    match runtime.rnic.memory().deregister(tag) {
        // Invalidated by a peer or by a request: its tag may be gone.
        Ok(()) | Err(MemoryError::Access(..)) => {
            // SAFETY: as above; its domain exists as long as it does.
            unsafe {
                domain((*mr).pd).users.remove();
                drop(take(mr));
            }
            0
        }
        Err(_) => libc::EBUSY,
    }
}

/// Reregistration is not offered.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_rereg_mr() -> c_int {
    // IBV_REREG_MR_ERR_INPUT: the old registration is unchanged.
    not_offered("ibv_rereg_mr", "deregister the memory and register it with the new options");
    crate::report::set_errno(libc::EOPNOTSUPP);
    -1
}
