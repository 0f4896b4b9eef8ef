//! Names of the command line that are none.

use crate::plugin;
use crate::server::serve;

#[test]
fn names_that_are_none_are_not_asked_for() {
    let (address, asked) = serve(&[]);
    for args in [
        &["describe", "../../secrets/x"][..],
        &["describe", "a?watch=1"],
        &["describe", ""],
        &["console", "../x"],
        &["plan", "db", "../x"],
        &["plan", "db", "--disklet-namespace", "../x"],
        &["leases", "ls", "--disklet-namespace", "a/b"],
        &["vm-pod", "validate", "-", "--disklet-namespace", ".."],
        &["describe", "db", "-n", "a/b"],
        &["describe", "a\u{1b}[2J"],
    ] {
        let args = [args, &["--server", &address]].concat();
        let told = plugin(&args, "");
        assert_eq!(told.code, Some(2), "{args:?}: {}", told.stderr);
        assert!(
            told.stderr.contains("lower-case letters"),
            "{}",
            told.stderr
        );
        told.assert_harmless();
    }
    assert_eq!(asked.all(), Vec::<String>::new());
    let told = plugin(&["describe", "db", "--server", &address], "");
    told.assert_refused("there is no such VM");
    assert_eq!(asked.all().len(), 1);
}
