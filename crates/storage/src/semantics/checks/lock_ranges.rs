//! Ranges of bytes, and conversion of locks: turns of two processes on one file, and what each of them is granted.

use clearstream_schema::semantics::{
    SemanticsFound,
    SemanticsVerdict::{No, Yes},
};

use super::{
    Check, Run, Stage, locks,
    locks::{FCNTL, FLOCK, OFD, both, must_exclude},
};
use crate::semantics::{
    actor::Checked,
    calls::{
        LockCall,
        LockChange::{self, Exclusive, Shared, Unlock},
    },
};

/// A terabyte: clients with 32 bit for an offset take it for the beginning.
const FAR: i64 = 1 << 40;
const LAST: i64 = i64::MAX;

/// The process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    First,
    Second,
}

use Who::{First, Second};

/// Who changes a lock how, from where to where; whether it is granted, and what is wrong otherwise.
type Turn = (Who, LockChange, i64, i64, bool, &'static str);

const HELD: &str = "refused although nobody else holds it";

const DISJOINT: &[Turn] = &[
    (First, Exclusive, 0, 10, true, HELD),
    (Second, Exclusive, 10, 20, true, "a lock of other bytes is refused"),
    (Second, Exclusive, 9, 10, false, "the last byte is granted to both"),
    (First, Exclusive, 19, 30, false, "overlapping bytes are granted to both"),
];
const SPLIT: &[Turn] = &[
    (First, Exclusive, 0, 30, true, HELD),
    (First, Unlock, 10, 20, true, "the middle cannot be cleared"),
    (Second, Exclusive, 10, 20, true, "the cleared middle is still locked"),
    (Second, Exclusive, 0, 10, false, "clearing the middle releases the beginning"),
    (Second, Exclusive, 20, 30, false, "clearing the middle releases the end"),
];
const MERGE: &[Turn] = &[
    (First, Exclusive, 0, 10, true, HELD),
    (First, Exclusive, 5, 20, true, "a process is refused by its own lock"),
    (First, Unlock, 0, 15, true, "two locks cannot be cleared as one"),
    (Second, Exclusive, 0, 15, true, "cleared bytes are still locked"),
    (Second, Exclusive, 15, 20, false, "bytes that were not cleared are granted to both"),
];
const DOWNGRADE: &[Turn] = &[
    (First, Exclusive, 0, 10, true, HELD),
    (First, Shared, 0, 10, true, "conversion to shared is refused"),
    (Second, Shared, 0, 10, true, "converted to shared, it excludes shared locks"),
    (Second, Exclusive, 0, 10, false, "converted to shared, it does not exclude exclusive locks"),
];
const UPGRADE: &[Turn] = &[
    (First, Shared, 0, 10, true, HELD),
    (First, Exclusive, 0, 10, true, "conversion to exclusive is refused"),
    (Second, Shared, 0, 10, false, "converted to exclusive, it does not exclude shared locks"),
];
const REFUSED: &[Turn] = &[
    (First, Shared, 0, 10, true, HELD),
    (Second, Shared, 0, 10, true, "a shared lock excludes another one"),
    (First, Exclusive, 0, 10, false, "converted to exclusive while another process has a shared lock"),
    (Second, Exclusive, 0, 10, false, "the shared lock is lost when its conversion is refused"),
];
const PARTS: &[Turn] = &[
    (First, Exclusive, 0, 30, true, HELD),
    (First, Shared, 10, 20, true, "conversion of a part is refused"),
    (Second, Shared, 10, 20, true, "the converted part excludes shared locks"),
    (Second, Shared, 0, 10, false, "conversion of a part converts the beginning"),
    (Second, Shared, 20, 30, false, "conversion of a part converts the end"),
];
const BEYOND: &[Turn] = &[
    (First, Exclusive, FAR, FAR + 10, true, HELD),
    (Second, Exclusive, 0, 10, true, "a lock at 1 TiB excludes the first bytes"),
    (Second, Exclusive, FAR + 9, FAR + 10, false, "bytes at 1 TiB are granted to both"),
    (Second, Exclusive, FAR + 10, FAR + 20, true, "bytes behind those at 1 TiB are refused"),
    (First, Exclusive, LAST - 10, LAST, true, "the last bytes that a file can have are refused"),
    (Second, Exclusive, LAST - 5, LAST - 4, false, "the last bytes that a file can have are granted to both"),
];
const TO_END: &[Turn] = &[
    (First, Exclusive, 100, 100, true, HELD),
    (Second, Exclusive, 0, 100, true, "a lock to the end excludes bytes before it"),
    (Second, Exclusive, 100, 101, false, "length 0 does not lock behind the end of the file"),
    (Second, Exclusive, FAR, FAR + 1, false, "length 0 does not lock to the largest offset"),
    (First, Unlock, 0, 0, true, "the whole file cannot be cleared"),
    (Second, Exclusive, FAR, FAR + 1, true, "clearing the whole file leaves the end locked"),
];
const NEGATIVE: &[Turn] = &[
    (First, Exclusive, 20, 10, true, HELD),
    (Second, Exclusive, 10, 20, false, "the bytes before the offset are granted to both"),
    (Second, Exclusive, 20, 30, true, "the bytes from the offset on are refused"),
    (Second, Exclusive, 0, 10, true, "the bytes before the range are refused"),
];
const FOREIGN: &[Turn] = &[
    (First, Exclusive, 0, 10, true, HELD),
    (Second, Unlock, 0, 10, true, "clearing what another process holds fails"),
    (Second, Exclusive, 0, 10, false, "another process can clear the lock"),
];

const PROCESS: LockCall = LockCall::Process;
const DESCRIPTION: LockCall = LockCall::Description;
const NEGATIVE_LENGTH: &str = "POSIX.1-2017 fcntl(), negative l_len";

pub(super) const CHECKS: &[Check] = &[
    locks("fcntl-disjoint", "disjoint ranges", FCNTL, Run::Pair(|stage| turns(stage, PROCESS, DISJOINT))),
    locks("fcntl-split", "fcntl split by an unlock", FCNTL, Run::Pair(|stage| turns(stage, PROCESS, SPLIT))),
    locks("fcntl-merge", "fcntl locks merge", FCNTL, Run::Pair(|stage| turns(stage, PROCESS, MERGE))),
    locks("fcntl-downgrade", "fcntl to shared", FCNTL, Run::Pair(|stage| turns(stage, PROCESS, DOWNGRADE))),
    locks("fcntl-upgrade", "fcntl to exclusive", FCNTL, Run::Pair(|stage| turns(stage, PROCESS, UPGRADE))),
    locks("fcntl-refused", "refused conversion", FCNTL, Run::Pair(|stage| turns(stage, PROCESS, REFUSED))),
    locks("fcntl-parts", "conversion of a part", FCNTL, Run::Pair(|stage| turns(stage, PROCESS, PARTS))),
    locks(
        "fcntl-beyond",
        "fcntl at 1 TiB and the last",
        FCNTL,
        Run::Pair(|stage| turns(stage, PROCESS, BEYOND)),
    ),
    locks("fcntl-to-end", "fcntl of length 0", FCNTL, Run::Pair(|stage| turns(stage, PROCESS, TO_END))),
    locks(
        "fcntl-negative",
        "fcntl of negative length",
        NEGATIVE_LENGTH,
        Run::Pair(|stage| turns(stage, PROCESS, NEGATIVE)),
    ),
    locks(
        "fcntl-foreign",
        "unlock by another process",
        FCNTL,
        Run::Pair(|stage| turns(stage, PROCESS, FOREIGN)),
    ),
    locks("ofd-split", "OFD split by an unlock", OFD, Run::Pair(|stage| turns(stage, DESCRIPTION, SPLIT))),
    locks("ofd-downgrade", "OFD to shared", OFD, Run::Pair(|stage| turns(stage, DESCRIPTION, DOWNGRADE))),
    locks("ofd-upgrade", "OFD to exclusive", OFD, Run::Pair(|stage| turns(stage, DESCRIPTION, UPGRADE))),
    locks(
        "ofd-beyond",
        "OFD at 1 TiB and the last",
        OFD,
        Run::Pair(|stage| turns(stage, DESCRIPTION, BEYOND)),
    ),
    locks("ofd-foreign", "unlock by another OFD", OFD, Run::Pair(|stage| turns(stage, DESCRIPTION, FOREIGN))),
    locks(
        "flock-downgrade",
        "flock to shared",
        FLOCK,
        Run::Pair(|stage| turns(stage, LockCall::Flock, DOWNGRADE)),
    ),
    locks(
        "flock-upgrade",
        "flock to exclusive",
        FLOCK,
        Run::Pair(|stage| turns(stage, LockCall::Flock, UPGRADE)),
    ),
    locks(
        "flock-foreign",
        "unlock by another flock",
        FLOCK,
        Run::Pair(|stage| turns(stage, LockCall::Flock, FOREIGN)),
    ),
];

fn turns(stage: &mut Stage<'_, '_>, call: LockCall, turns: &[Turn]) -> Checked<SemanticsFound> {
    let (first, second) = both(stage)?;
    // Where locks are in nobody's way, none of what is said of a turn would be the reason.
    stage.first.must_lock(first, call)?;
    must_exclude(stage.second()?, second, call)?;
    stage.first.change_lock(first, call, Unlock, 0, 10)?;
    for (who, change, start, end, expected, wrong) in turns {
        let granted = match who {
            First => stage.first.change_lock(first, call, *change, *start, *end)?,
            Second => stage.second()?.change_lock(second, call, *change, *start, *end)?,
        };
        if granted != *expected {
            return Ok(SemanticsFound::new(No).with(*wrong));
        }
    }
    Ok(SemanticsFound::new(Yes))
}
