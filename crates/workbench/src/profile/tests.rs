//! With stand-ins for `ncu` and for a program over operations: neither needs a GPU.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;

use super::*;

/// A program that another test starts between writing a script and running it would have the script open, and it could not be run.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const PROGRAM: &str = r#"#!/bin/sh
case "$*" in
  'list --json') echo '{"name":"softmax","idea":"x","sizes":["rows"],"kernels":["softmax_fp32"],"small":["rows=1","rows=7"],"large":["rows=4096"]}';;
  *--ncu*) echo '{"operation":"softmax","kernels":[{"kernel":"softmax_fp32","launches":[1,1],"counters":[
    {"what":"global load sectors","executor":256,"gpu":256},{"what":"shared load conflicts","executor":90,"gpu":100},
    {"what":"global atomic sectors","executor":0,"gpu":0}]}]}' | tr -d '\n'; echo;;
  *) echo '{"operation":"softmax","sizes":"rows=7","kernels":[{"kernel":"softmax_fp32","launches":1,"rows":[
    {"line":"kernels/src/lib.rs:9","what":"shared load","requests":1,"lanes":32,"bytes":128,"sectors":0,"wavefronts":2,"conflicts":1},
    {"line":"kernels/src/lib.rs:5","what":"global load","requests":8,"lanes":256,"bytes":1024,"sectors":32,"wavefronts":0,"conflicts":0},
    {"line":null,"what":"global load","requests":8,"lanes":256,"bytes":1024,"sectors":32,"wavefronts":0,"conflicts":0}]}]}' | tr -d '\n'; echo;;
esac
"#;

/// Writes what is in `$TABLE` where it is told to; what it was told, it notes.
const NCU: &str = r#"#!/bin/sh
here=$(dirname "$0")
if [ "$1" = --version ]; then echo 'NVIDIA (R) Nsight Compute Command Line Profiler'; echo 'Version 2025.3.1.0'; exit 0; fi
echo "$*" > "$here/told"
while [ "$1" != --log-file ]; do shift; done
cp "$here/table" "$2"
exit $(cat "$here/status")
"#;

struct StandIns {
    directory: tempfile::TempDir,
}

impl StandIns {
    fn new(table: &str, status: u8) -> Self {
        let stand_ins = Self { directory: tempfile::tempdir().unwrap() };
        stand_ins.write("program", PROGRAM);
        stand_ins.write("ncu", NCU);
        stand_ins.write("table", table);
        stand_ins.write("status", &status.to_string());
        stand_ins
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn arguments(&self) -> Arguments {
        let (kernel, ncu) = ("softmax_fp32".to_owned(), self.path("ncu"));
        Arguments { kernel, op: None, sizes: None, ncu, device: 0, json: false }
    }

    fn profile(&self) -> anyhow::Result<Profile> {
        let arguments = self.arguments();
        let operations = operations(&self.path("program"), &arguments)?;
        profile(&self.path("program"), &operations[0], &arguments)
    }
}

fn table(kernel: &str) -> String {
    let values = ["61,000", "128,000,000", "64,000,000", "91.5", "40.2", "22", "12", "n/a", "30", "56.2"];
    let line = |fields: &[&str]| format!("\"{}\"\n", fields.join("\",\""));
    let names = line(&[&["Kernel Name"], &METRICS[..]].concat());
    format!("==PROF== x\n{names}{}{}", line(&[""; 11]), line(&[&[kernel], &values[..]].concat()))
}

#[test]
fn what_both_have_counted_is_told_in_the_words_of_the_roofline() {
    let _guard = ONE_AT_A_TIME.lock();
    let stand_ins = StandIns::new(&table("softmax_fp32"), 0);
    assert_eq!(version(stand_ins.path("ncu").as_os_str()).as_deref(), Some("Version 2025.3.1.0"));
    let profile = stand_ins.profile().unwrap();
    let text = text(&profile, Style::plain());
    let told = fs::read_to_string(stand_ins.path("told")).unwrap();
    assert!(told.contains("--kernel-name softmax_fp32") && told.contains(TIME_METRIC), "{told}");
    assert!(told.trim_end().ends_with("program cost --op softmax --sizes rows=4096 --launch-on cuda:0"), "{told}");
    assert!(text.starts_with("softmax_fp32  softmax with rows=4096\n"), "{text}");
    assert!(
        text.contains("limit         bandwidth of the GPU's memory: 92 % of the peak, 8 % from the roof"),
        "{text}"
    );
    assert!(text.contains("global load sectors               256          256   equal"), "{text}");
    assert!(text.contains("shared load conflicts              90          100   -10.0 %"), "{text}");
    assert!(!text.contains("atomic"), "{text}");
    let lines: Vec<_> = text.lines().rev().take(2).map(str::trim).collect();
    assert_eq!(
        lines,
        [
            "kernels/src/lib.rs:9  shared load: 1 requests, 0 sectors, 1 conflicts",
            "kernels/src/lib.rs:5  global load: 8 requests, 32 sectors, 0 conflicts",
        ]
    );
    let json = serde_json::to_value(&profile).unwrap();
    assert_eq!(json["measured"]["limit"], "bandwidth of the GPU's memory");
}

const TIME_METRIC: &str = METRICS[0];

#[test]
fn who_may_not_read_counters_is_told_what_to_ask_for() {
    let _guard = ONE_AT_A_TIME.lock();
    let denied =
        "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters\n";
    let message = StandIns::new(denied, 1).profile().unwrap_err().to_string();
    for part in ["ERR_NVGPUCTRPERM", "as root", "NVreg_RestrictProfilingToAdminUsers=0", "administrator"] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn what_ncu_says_of_a_failure_is_told() {
    let _guard = ONE_AT_A_TIME.lock();
    let message = StandIns::new("==ERROR== no device\n", 9).profile().unwrap_err().to_string();
    assert!(message.contains("exit status: 9") && message.contains("no device"), "{message}");
    let message = StandIns::new(&table("other"), 0).profile().unwrap_err().to_string();
    assert!(message.contains("has measured nothing of `softmax_fp32` with rows=4096: ==PROF== x"), "{message}");
}

#[test]
fn unknown_operations_are_refused_with_the_nearest() {
    let _guard = ONE_AT_A_TIME.lock();
    let stand_ins = StandIns::new("", 0);
    let refused = |kernel: &str, op: Option<&str>| {
        let arguments = Arguments { kernel: kernel.to_owned(), op: op.map(str::to_owned), ..stand_ins.arguments() };
        operations(&stand_ins.path("program"), &arguments).unwrap_err().to_string()
    };
    assert_eq!(refused("axpy", None), "no operation of the program launches `axpy`");
    assert_eq!(refused("softmax_fp32", Some("softmaks")), "there is no operation `softmaks` (did you mean `softmax`?)");
}

#[test]
fn a_missing_tool_is_named_with_the_way_to_get_it() {
    let missing = missing(Path::new("/no/such/ncu")).unwrap();
    assert!(
        missing.contains("`/no/such/ncu` cannot be run") && missing.contains("developer.nvidia.com/nsight-compute"),
        "{missing}"
    );
}
