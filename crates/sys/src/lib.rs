//! Home of unsafe code: system calls that the safe libraries lack, one file per kernel facility, each with a
//! safe interface.
#![allow(unsafe_code)]

pub mod affinity;
pub mod connect;
pub mod datagram_batch;
pub mod document;
pub mod errno;
pub mod ethtool;
pub mod file;
pub mod file_lock;
pub mod file_map;
pub mod interruption;
pub mod lines;
pub mod link_packet;
pub mod memory;
pub mod mount;
pub mod mpi;
pub mod namespace;
pub mod packet_socket;
pub mod perf;
mod place;
pub mod priority;
pub mod private_folder;
pub mod process;
pub mod program;
pub mod segment_mark;
pub mod socket;
pub mod splice;
pub mod tcp_info;
pub mod timestamp;
pub mod tun;
pub mod uring;
pub mod usage;
pub mod writer_lock;
