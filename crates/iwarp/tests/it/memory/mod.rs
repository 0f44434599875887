//! Registered memory as used by the protocol and by consumers: STags and their
//! errors, windows, spans, buffers, foreign memory, socket calls.
#![allow(unsafe_code, reason = "foreign memory is registered by unsafe functions")]

mod access_checks;
mod buffers;
mod pinning;
mod raw;
mod refused;
mod sockets;
mod spans;
mod threads;
mod untrusted;
mod windows;

use std::sync::Arc;

use clearstream_iwarp::{
    memory::{Access, MemoryTable, Region},
    stag::{DomainId, QueuePairId, Stag},
};

const PAIR: QueuePairId = QueuePairId(7);

/// A table with one domain.
fn table() -> (Arc<MemoryTable>, DomainId) {
    let table = MemoryTable::new();
    let domain = table.allocate_domain();
    (table, domain)
}

/// All rights.
fn all() -> Access {
    Access::LOCAL_WRITE
        | Access::REMOTE_READ
        | Access::REMOTE_WRITE
        | Access::REMOTE_ATOMIC
        | Access::BIND_WINDOW
}

/// A region with these rights.
fn region(table: &MemoryTable, domain: DomainId, length: usize, access: Access) -> (Region, Stag) {
    let region = Region::new(length).unwrap();
    let stag = table.register(domain, region.memory(), access, 0x5a).unwrap();
    (region, stag)
}
