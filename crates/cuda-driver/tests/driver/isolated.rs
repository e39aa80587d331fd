//! Tests in processes of their own: a process opens a driver's library only once. Also a part of tests of the package `tests`.

use std::process::Command;

/// Runs `body` in a new process, with the environment and further arguments that `prepare` gives it. `test` is the name of the
/// calling test: the new process is this same program, told to run the one test with this in its name.
pub(crate) fn isolated(test: &str, prepare: impl FnOnce(&mut Command), body: impl FnOnce()) {
    const MARK: &str = "TILEWRIGHT_ISOLATED_TEST";
    if std::env::var_os(MARK).is_some() {
        return body();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--nocapture", "--test-threads=1"]).env(MARK, "1").env_remove("CUDA_VISIBLE_DEVICES");
    prepare(&mut command);
    let output = command.output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // A process that finds no test of this name succeeds as well.
    assert!(
        output.status.success() && text.contains(" 1 passed"),
        "{test}, in its own process ({}):\n{text}",
        output.status
    );
    print!("{text}");
}
