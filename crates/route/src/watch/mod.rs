//! The watch over gateways: it probes each of them from end to end, takes out
//! what forwards nothing and puts it back when it does again.
mod gateway;
pub mod packet;
#[cfg(test)]
mod tests;
pub mod way;
