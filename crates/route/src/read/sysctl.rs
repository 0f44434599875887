//! `sysctl.conf` and the files of `sysctl.d`.

use clearstream_tune::syntax;

use super::{
    Source,
    gathering::{Gathering, place},
};

pub(super) fn read(source: &Source, gathering: &mut Gathering) {
    let parsed = syntax::parse(&source.text);
    for statement in parsed.statements {
        gathering.sysctl(&statement.key, &statement.value, place(&source.path, statement.line));
    }
    for slip in parsed.slips {
        gathering.unread(&source.path, slip.line, &slip.text, slip.reason);
    }
}
