//! What the tools have found.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::tool::Tool;

/// What one tool has found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolReport {
    /// The tool.
    pub tool: Tool,
    /// The injected fault that it had to report; none in a program that has no kernel with one.
    pub planted: Option<String>,
    /// Whether it did, by the kernel's name.
    pub planted_reported: bool,
    /// The first lines that it wrote about that, and the last ones that the program wrote.
    pub planted_log: Vec<String>,
    /// The kernels that it has looked at.
    pub kernels: Vec<String>,
    /// Those of which it does not see enough.
    pub left_out: Vec<String>,
    /// What it has found in the kernels.
    pub outcome: Outcome,
    /// How long the kernels took.
    pub seconds: f64,
}

/// What has been found in kernels.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The errors that the tool counts.
    pub errors: u64,
    /// Its warnings.
    pub warnings: u64,
    /// What else went wrong: a program that did not end well, a log that cannot be read.
    pub problems: Vec<String>,
    /// Lines of logs, and of what the program wrote, where something was found.
    pub excerpt: Vec<String>,
}

impl Outcome {
    /// Adds what was found in another run.
    pub(super) fn add(&mut self, other: Self) {
        self.errors += other.errors;
        self.warnings += other.warnings;
        self.problems.extend(other.problems);
        self.excerpt.extend(other.excerpt);
    }
}

impl ToolReport {
    /// Whether the tool has reported the injected fault, if there was one, and no other. Warnings are for people to explain.
    pub fn passed(&self) -> bool {
        (self.planted_reported || self.planted.is_none())
            && self.outcome.errors == 0
            && self.outcome.problems.is_empty()
    }

    /// What it made of the injected fault, in a few words.
    pub fn planted_words(&self) -> &'static str {
        match (&self.planted, self.planted_reported) {
            (None, _) => "none: the tool was not tried",
            (Some(_), true) => "reported",
            (Some(_), false) => "NOT REPORTED",
        }
    }

    /// One line that says what was found.
    pub fn line(&self) -> String {
        let fault = self.planted.as_ref().map(|fault| format!(" ({fault})")).unwrap_or_default();
        let Outcome { errors, warnings, problems, .. } = &self.outcome;
        format!(
            "{}: injected fault{fault} {}; {} kernels, {errors} errors, {warnings} warnings, {} problems",
            self.tool,
            self.planted_words(),
            self.kernels.len(),
            problems.len()
        )
    }

    /// What there is to read where something was found, or was not reported: some lines, or none.
    pub fn details(&self) -> String {
        let mut text = String::new();
        if let (Some(fault), false) = (&self.planted, self.planted_reported) {
            text += &format!("  {}: the injected fault `{fault}` was to be reported:\n", self.tool);
            self.planted_log.iter().for_each(|line| text += &format!("    {line}\n"));
        }
        self.outcome.problems.iter().for_each(|problem| text += &format!("  {}: {problem}\n", self.tool));
        self.outcome.excerpt.iter().for_each(|line| text += &format!("    {line}\n"));
        text
    }
}

impl fmt::Display for ToolReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.line())?;
        let details = self.details();
        if details.is_empty() { Ok(()) } else { write!(f, "\n{}", details.trim_end()) }
    }
}
