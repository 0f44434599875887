//! Holds a lab, as the hidden command of the program does: the keeper for the
//! tests of this crate.

fn main() -> Result<(), clearstream_lab::LabError> {
    clearstream_lab::keeper::run()
}
