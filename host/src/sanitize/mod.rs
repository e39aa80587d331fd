//! `tilewright sanitize`: the kernels under the tools of NVIDIA's `compute-sanitizer`, on a GPU: those of products by themselves, on
//! small products of odd shapes, and the operations of all others. Each tool has to report a kernel with an injected fault first.
//! How tools are run and read is [`testkit::sanitize`]'s.

pub mod args;
mod report;

use std::path::PathBuf;

use testkit::sanitize::{self as engine, InjectedFault, Subject, Tool};
use tilewright::device::Device;
use tilewright::kernels::{self, Family, KernelInfo};
use tilewright::plan::Storage;

use crate::planted::Fault;
use crate::{Error, files};
pub use report::SanitizeReport;

/// What to look for, and where.
#[derive(Clone, Debug)]
pub struct Options {
    /// The tools.
    pub tools: Vec<Tool>,
    /// How they are run, on a program that is `tilewright`.
    pub how: engine::Options,
    /// The names of the kernels; all that the GPU runs if there are none.
    pub kernels: Vec<String>,
    /// The number of the GPU.
    pub ordinal: usize,
    /// Where to write the report as JSON.
    pub output: Option<PathBuf>,
}

/// Runs the tools on their injected faults and on the kernels, and gives `print` what there is to read, as it comes. What a tool
/// finds is in the report, and no error.
///
/// # Errors
/// [`UnknownName`](tilewright::Error::UnknownName), [`Error::File`] and [`Error::Program`], before anything runs; [`DeviceError::Driver`](runtime::Error::Driver) where there is no GPU;
/// [`DeviceError::KernelForOtherGpus`](runtime::Error::KernelForOtherGpus) for a kernel that was asked for and does not run on this one.
pub fn run(options: &Options, mut print: impl FnMut(&str)) -> Result<SanitizeReport, Error> {
    let subjects = subjects(&options.kernels, options.ordinal)?;
    if let Some(path) = &options.output {
        files::check_writable(path)?;
    }
    let version = engine::version(&options.how.compute_sanitizer)?;
    let (device, subjects) = {
        // It is closed again: the tools run other processes.
        let device = Device::cuda(options.ordinal)?;
        (device.describe(), Subject::on(&device, subjects, options.kernels.is_empty())?)
    };
    let mut report = SanitizeReport::begin(device, options.how.compute_sanitizer.clone(), version);
    print(&report.heading());
    for &tool in &options.tools {
        let one = engine::sanitize(tool, Some(&injected(fault_of(tool), options.ordinal)), &subjects, &options.how)?;
        print(&format!("{}\n", one.line()));
        report.tools.push(one);
    }
    print(&report.table());
    if let Some(path) = &options.output {
        files::write_json(path, &report)?;
    }
    Ok(report)
}

/// The kernels of products by themselves, and the operations of other kernels; of both only those in which a kernel of these names
/// runs, if there are any.
fn subjects(names: &[String], ordinal: usize) -> Result<Vec<Subject>, Error> {
    let device = format!("cuda:{ordinal}");
    let products = kernels::ALL.iter().map(|kernel| {
        let arguments = words(&format!("{} --device {device}", product_arguments(kernel)));
        Ok(Subject { kernels: vec![kernel.facts], arguments })
    });
    let operations = gpu_kernels::OPERATIONS.iter().map(|&operation| Subject::of(operation, &["--device", &device]));
    let all: Vec<Subject> = products.chain(operations).collect::<Result<_, testkit::Error>>()?;
    let known = || all.iter().flat_map(|subject| &subject.kernels).map(|kernel| kernel.name);
    if let Some(name) = names.iter().find(|name| !known().any(|known| known == *name)) {
        return Err(Error::unknown_name("kernel", name, known().collect()));
    }
    let is_wanted =
        |subject: &Subject| subject.kernels.iter().any(|kernel| names.iter().any(|name| name == kernel.name));
    Ok(all.into_iter().filter(|subject| names.is_empty() || is_wanted(subject)).collect())
}

/// The injected fault that a tool has to report.
fn fault_of(tool: Tool) -> Fault {
    match tool {
        Tool::Memcheck => Fault::ReadOutOfBounds,
        Tool::Racecheck => Fault::RaceInSharedMemory,
        Tool::Synccheck => Fault::BarriersInBothBranches,
        Tool::Initcheck => Fault::ReadUnwritten,
    }
}

/// A kernel with a fault, as the program runs it.
fn injected(fault: Fault, ordinal: usize) -> InjectedFault {
    InjectedFault {
        name: fault.name().to_owned(),
        kernel: fault.kernel().to_owned(),
        arguments: words(&format!("planted {fault} --device cuda:{ordinal}")),
    }
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// What the program is told to run a kernel on a small product of odd shape.
fn product_arguments(kernel: &KernelInfo) -> String {
    let is_transposed = |needs: Option<Storage>| (needs == Some(Storage::ByColumns)).to_string();
    let n = if kernel.family() == Family::Gemv { 1 } else { 68 };
    let k = kernel.most_terms().map_or(131, |most| most.min(50));
    let (a, b) = (is_transposed(kernel.a), is_transposed(kernel.b));
    format!(
        "run --problem large-k --kernel {} --precision {} --m 131 --n {n} --k {k} --trans-a {a} --trans-b {b} --runs 1",
        kernel.name,
        kernel.scheme.precision().name()
    )
}

#[cfg(test)]
mod tests;
