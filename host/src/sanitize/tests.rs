//! What is run under the tools, and the report.

use testkit::sanitize::{Outcome, ToolReport};
use tilewright::device::DeviceInfo;

use super::*;

#[test]
fn the_program_is_told_of_every_kernel_on_the_gpu_that_was_asked_for() {
    let all = subjects(&[], 3).unwrap();
    let told: Vec<String> = all.iter().map(|subject| subject.arguments.join(" ")).collect();
    for kernel in kernels::ALL.iter() {
        assert!(told.iter().any(|told| told.contains(&format!("--kernel {} ", kernel.name))), "{}", kernel.name);
    }
    for operation in gpu_kernels::OPERATIONS {
        let name = operation.describe().name;
        assert!(told.iter().any(|told| told.starts_with(&format!("run --op {name} --sizes "))), "{name}");
    }
    assert!(told.iter().all(|told| told.ends_with(" --device cuda:3")));
    assert_eq!(injected(Fault::Trap, 3).arguments.join(" "), "planted trap --device cuda:3");
}

#[test]
fn a_report_is_a_table_and_comes_back_from_json() {
    let device = DeviceInfo::Cpu { name: None, threads: 1, checks: "full".to_owned() };
    let mut report = SanitizeReport::begin(device, "compute-sanitizer".into(), "2025.3.1.0".to_owned());
    report.tools.push(ToolReport {
        tool: Tool::Initcheck,
        planted: Some(Fault::ReadUnwritten.to_string()),
        planted_reported: true,
        planted_log: vec!["a line of the log".to_owned()],
        kernels: vec!["matrix_scaling_fp32".to_owned()],
        left_out: Vec::new(),
        outcome: Outcome::default(),
        seconds: 1.0,
    });
    let row = |report: &SanitizeReport| {
        let table = report.table();
        table.lines().find(|line| line.contains("| initcheck")).map(str::to_owned).unwrap_or_else(|| panic!("{table}"))
    };
    assert!(report.passed() && row(&report).contains(" ok "), "{}", report.table());
    assert_eq!(serde_json::from_str::<SanitizeReport>(&serde_json::to_string(&report).unwrap()).unwrap(), report);
    report.tools[0].planted_reported = false;
    assert!(!report.passed() && row(&report).contains("NOT REPORTED") && row(&report).contains("FAILED"));
    assert!(report.table().contains("read-unwritten") && report.table().contains("a line of the log"));
}

#[test]
fn every_tool_has_a_fault_of_its_own() {
    let kernels = Tool::ALL.map(|tool| injected(fault_of(tool), 0).kernel);
    assert!((1..4).all(|i| !kernels[..i].contains(&kernels[i])), "{kernels:?}");
}
