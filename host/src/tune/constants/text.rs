//! What was found, for people.

use std::fmt::Write;

use super::contest::Contest;
use super::measure::Measured;
use tilewright::plan::Constants;
use tilewright::plan::fit::{Fit, FitErrors, KernelFit, Observation};

/// How a constant is shown: its unit, and what a value is divided by for that.
fn unit_of(name: &str) -> (&'static str, f64) {
    match name {
        "bandwidth" => (" TB/s", 1e12),
        _ if name.ends_with("_rate") => (" TFLOP/s", 1e12),
        _ if name.ends_with("_seconds") => (" us", 1e-6),
        _ => ("", 1.0),
    }
}

/// The constants of the whole GPU, before and now.
pub(super) fn of_machine(built_in: &Constants, found: &Fit, measured: &Measured) -> String {
    let mut text = "Constants of the whole GPU, built in -> now:\n".to_owned();
    let now = found.constants.machine.named();
    for ((name, before), (_, after)) in built_in.machine.named().into_iter().zip(now) {
        let (unit, scale) = unit_of(name);
        let by = match found.machine.iter().find(|fit| fit.name == name) {
            Some(fit) if fit.after == fit.before => format!("kept: {} times depend on it", fit.times),
            Some(fit) => format!("by {} times", fit.times),
            None if name.ends_with("_rate") => "by the kernels that use it".to_owned(),
            None => "by a probe".to_owned(),
        };
        _ = writeln!(text, "  {name:<22} {:>8.3} -> {:>8.3}{unit:<9} {by}", before / scale, after / scale);
    }
    _ = writeln!(
        text,
        "  {} times of products; launches took {:.2} us",
        measured.fitted.len() + measured.held_out.len(),
        measured.probed.launch_seconds * 1e6
    );
    text
}

/// The constants of each kernel, before and now, and the errors of the estimates that come of them.
pub(super) fn of_kernels(built_in: &Constants, found: &Fit, measured: &Measured) -> String {
    let mut text = "Kernels: speed of steps as a multiple of what was known, us of a block, factor of unaligned operands; errors of \
                    held-out times (|ln(estimated / measured)|): median, then 95 %, before -> now; ! where they are worse now\n"
        .to_owned();
    for KernelFit { kernel, before, after, speed, times } in &found.kernels {
        let held_out = || measured.held_out.iter().filter(|time| time.features.kernel().name == *kernel);
        _ = writeln!(
            text,
            "  {kernel:<40} x{speed:<5.2} {:>5.2} -> {:>5.2} us  {:.2} -> {:.2}   {}   ({times} times)",
            before.block_seconds * 1e6,
            after.block_seconds * 1e6,
            before.unaligned,
            after.unaligned,
            errors(built_in, &found.constants, held_out())
        );
    }
    _ = writeln!(text, "All held-out times: {}", errors(built_in, &found.constants, &measured.held_out));
    _ = writeln!(text, "All fitted times:   {}", errors(built_in, &found.constants, &measured.fitted));
    text
}

/// Errors before and now.
fn errors<'a>(before: &Constants, now: &Constants, times: impl IntoIterator<Item = &'a Observation> + Clone) -> String {
    match [before, now].map(|constants| FitErrors::of(constants, times.clone())) {
        [Some(before), Some(now)] => {
            format!("{:.3} -> {:.3}, {:.3} -> {:.3} of {}", before.median, now.median, before.most, now.most, now.times)
        }
        _ => "none held out".to_owned(),
    }
}

/// Whose plans are the best.
pub(super) fn of_contest(names: &[&str], contest: &Contest) -> String {
    let mut text = format!(
        "Plans for {} products of the atlas, of which {} differ; their times as a multiple of the least, in the mean:\n",
        contest.shapes, contest.differing
    );
    for (index, (name, mean)) in names.iter().zip(&contest.means).enumerate() {
        let chosen = if index == contest.best() { "   chosen" } else { "" };
        _ = writeln!(text, "  {name:<42} {mean:.3}{chosen}");
    }
    text
}

/// What was not measured.
pub(super) fn of_gaps(found: &Fit, measured: &Measured) -> String {
    let mut text = String::new();
    if !measured.not_reached.is_empty() {
        _ = writeln!(
            text,
            "Time was up: these keep what is built in, but for the rates of the GPU ({}; --limit-seconds allows more): {}",
            measured.not_reached.len(),
            measured.not_reached.join(", ")
        );
    }
    if found.kernels.is_empty() {
        text += "No kernel has enough times: only what probes measure was found.\n";
    }
    for failure in &measured.failed {
        let failure = failure.split_whitespace().collect::<Vec<_>>().join(" ");
        _ = writeln!(text, "Not measured: {failure}");
    }
    text
}
