//! Keeper for the tests of this crate: runs a lab like the hidden command of
//! the program.

fn main() -> Result<(), clearstream_lab::LabError> {
    clearstream_lab::keeper::run()
}
