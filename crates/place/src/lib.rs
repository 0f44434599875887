//! Placement of interrupts, queues, processes and flows.
#![forbid(unsafe_code)]
