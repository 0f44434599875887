//! Packages of the static program: built, installed where nothing else is, run, and removed.

use crate::packages::{self, done, output_of, root};

/// The commands of docs/guide/install.md, in its order. Takes minutes: it compiles everything once more.
#[test]
fn root_static_packages_are_built_installed_run_and_removed_as_the_guide_describes() {
    // Neither optimised nor compressed, which changes nothing else.
    let made = done("make", &["-s", "package"], &[("FAST", "1")]);
    let text = output_of(&made);
    assert!(made.status.success(), "{text}");
    for sentence in [
        "runs with nothing but a kernel",
        "runs without the system calls that came after Linux 4.18",
        "measured, libraries loaded, removed without a trace",
        "needs no other package",
    ] {
        assert!(text.contains(sentence), "{sentence}: {text}");
    }
    let folder = root().join("target/packages");
    packages::are_described(&folder);
    // And without a package: what `make static` leaves is what `make install` takes.
    packages::is_installed_without_a_package(&folder, &[]);
}
