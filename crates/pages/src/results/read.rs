//! From the text of a file to what it says.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::content::{Content, File, Source};

/// What is no results file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is not JSON, nor lines of JSON.
    #[error("{file} is no results file: it is not JSON: {reason}")]
    NotJson {
        /// The file.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// It is JSON of something else.
    #[error(
        "{file} is no results file: it is JSON, but not what `tilewright bench --json`, `tilewright run --json`, `bench --json`, \
         `cost --ncu --json`, `agreement` or `conformance` write"
    )]
    Unknown {
        /// The file.
        file: String,
    },
}

/// A file that was read, or that is of another version.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading {
    /// What it says.
    Results(Box<File>),
    /// It is a results file, and this program cannot read it.
    LeftOut {
        /// The file.
        file: String,
        /// Why, and what to do.
        reason: String,
    },
}

/// The schemas that files name, and the versions of them that are read.
const SCHEMAS: [(&str, Kind, &[u64]); 3] = [
    ("tilewright-bench", Kind::Bench, &[1]),
    ("tilewright-atlas", Kind::Atlas, &[1]),
    ("tilewright-operation", Kind::Operations, &[1]),
];

/// What a file is, by its looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bench,
    Atlas,
    Run,
    Operations,
    Counters,
    Costs,
    KernelBench,
    Agreement,
    Conformance,
}

impl Kind {
    /// The command that writes such files.
    fn command(self) -> &'static str {
        match self {
            Self::Bench => "tilewright bench --json FILE",
            Self::Atlas => "tilewright bench --suite atlas --json FILE",
            Self::Run => "tilewright run --json FILE",
            Self::Operations => "bench --json",
            Self::Counters | Self::Costs => "cost --ncu --json",
            Self::KernelBench => "python kernelbench/run.py --json FILE",
            Self::Agreement => "agreement --output DIRECTORY",
            Self::Conformance => "conformance --output DIRECTORY",
        }
    }

    /// By the fields that only this kind has. Lines of JSON are given as an array.
    fn of(value: &Value) -> Option<Self> {
        let has = |names: &[&str]| names.iter().all(|name| value.get(name).is_some());
        if let Value::Array(items) = value {
            let first = items.first()?;
            let has = |names: &[&str]| names.iter().all(|name| first.get(name).is_some());
            let in_kernel = |name: &str| first["kernels"].get(0).is_none_or(|kernel| kernel.get(name).is_some());
            return match () {
                () if has(&["kernel", "same_bits", "error_of_gpu"]) => Some(Self::Agreement),
                () if has(&["operation", "median_ms", "bytes"]) => Some(Self::Operations),
                () if has(&["operation", "kernels"]) && in_kernel("counters") => Some(Self::Counters),
                () if has(&["operation", "kernels"]) && in_kernel("rows") => Some(Self::Costs),
                () => None,
            };
        }
        match () {
            () if has(&["outcomes", "elements", "seed"]) => Some(Self::Conformance),
            () if has(&["kernels", "summary"]) => Some(Self::Counters),
            () if has(&["problems", "environment", "method"]) => Some(Self::KernelBench),
            () if has(&["problems", "device", "date"]) => Some(Self::Run),
            () => None,
        }
    }
}

/// Reads the text of a file.
///
/// # Errors
/// [`Error`] for what is no results file.
pub fn read(name: &str, text: &str) -> Result<Reading, Error> {
    let value = json(name, text)?;
    // Lines have a schema each, and are of one version.
    let head = value.get(0).unwrap_or(&value);
    let left_out = |reason: String| Ok(Reading::LeftOut { file: name.to_owned(), reason });
    let (kind, schema) = match head["schema"].as_str() {
        Some(schema) => {
            let version = head["schema_version"].as_u64();
            let shown = version.map_or_else(|| "no version".to_owned(), |version| format!("version {version}"));
            let Some((_, kind, versions)) = SCHEMAS.iter().find(|(known, ..)| *known == schema) else {
                if !schema.starts_with("tilewright-") {
                    return Err(Error::Unknown { file: name.to_owned() });
                }
                return left_out(format!("it has the schema `{schema}`, {shown}, which this report does not show"));
            };
            if !version.is_some_and(|version| versions.contains(&version)) {
                let read: Vec<_> = versions.iter().map(u64::to_string).collect();
                return left_out(format!(
                    "it has {shown} of the schema `{schema}`, and this program reads {}: measure again with `{}`, or use the \
                     program that wrote it",
                    read.join(", "),
                    kind.command()
                ));
            }
            (*kind, format!("{schema} {shown}"))
        }
        None => match Kind::of(&value) {
            Some(kind) => (kind, String::new()),
            None => return Err(Error::Unknown { file: name.to_owned() }),
        },
    };
    if kind == Kind::Costs {
        return left_out(
            "it has the executor's counters alone: with `cost --ncu --json` those of a GPU stand beside them"
                .to_owned(),
        );
    }
    let is_of_executor = match kind {
        Kind::Operations => {
            value.as_array().is_some_and(|lines| lines.iter().all(|line| line["is_of_executor"] == true))
        }
        _ => head["device"]["kind"] == "cpu",
    };
    if is_of_executor {
        return left_out(format!(
            "its times are those of the CPU executor, which say nothing about a GPU: measure on a GPU with `{}`",
            kind.command()
        ));
    }
    let source = source(name, head, kind, schema);
    let content = match kind {
        Kind::Bench => parsed(&value).map(Content::Bench),
        Kind::Atlas => parsed(&value).map(Content::Atlas),
        Kind::Run => parsed(&value).map(Content::Run),
        Kind::Operations => parsed(&value).map(Content::Operations),
        Kind::Counters | Kind::Costs => parsed(&value).map(Content::Counters),
        Kind::KernelBench => parsed(&value).map(Content::KernelBench),
        Kind::Agreement => parsed(&value).map(Content::Agreement),
        Kind::Conformance => parsed(&value).map(Content::Conformance),
    };
    match content {
        Ok(content) => Ok(Reading::Results(Box::new(File { source, content }))),
        Err(reason) => left_out(format!(
            "it is of another version of `{}`, which this program cannot read: {reason}. Measure again, or use the program that wrote it",
            kind.command()
        )),
    }
}

/// JSON, or lines of it, as an array.
fn json(name: &str, text: &str) -> Result<Value, Error> {
    let not_json = |reason: serde_json::Error| Error::NotJson { file: name.to_owned(), reason: reason.to_string() };
    let whole = serde_json::from_str::<Value>(text);
    match whole {
        // One operation alone is a line, too.
        Ok(value) if value.get("operation").is_some() => Ok(Value::Array(vec![value])),
        Ok(value) => Ok(value),
        Err(reason) => {
            let lines = text.lines().filter(|line| !line.trim().is_empty());
            let lines: Result<Vec<Value>, _> = lines.map(serde_json::from_str).collect();
            lines.ok().filter(|lines| lines.len() > 1).map(Value::Array).ok_or_else(|| not_json(reason))
        }
    }
}

fn parsed<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    T::deserialize(value).map_err(|error| error.to_string())
}

/// What a file says of its making.
fn source(name: &str, head: &Value, kind: Kind, schema: String) -> Source {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let driver = |release: &Value, cuda: &Value| match (release.as_str(), cuda.as_str()) {
        (Some(release), Some(cuda)) => format!("{release} (CUDA {cuda})"),
        (Some(release), None) => release.to_owned(),
        (None, Some(cuda)) => format!("CUDA {cuda}"),
        (None, None) => String::new(),
    };
    let mut source = Source {
        file: name.to_owned(),
        written_by: kind.command().to_owned(),
        schema,
        date: text(&head["date"]),
        commit: text(&head["commit"]),
        ..Source::default()
    };
    match &head["device"] {
        Value::String(device) => {
            source.gpu = inner_name(device).to_owned();
            source.driver = text(&head["driver"]);
        }
        device => {
            source.gpu = text(&device["name"]);
            source.driver = driver(&device["driver_release"], &device["driver_cuda_version"]);
        }
    }
    if let Some(version) = head["cublas"]["version"].as_str() {
        source.beside = format!("cuBLAS {version}");
    }
    if let Some(torch) = head["torch"].as_str() {
        source.beside += &format!("{}torch {torch}", if source.beside.is_empty() { "" } else { ", " });
    }
    let state = &head["state_before"];
    if let (Some(sm), Some(most), Some(memory)) =
        (state["sm_mhz"].as_u64(), state["max_sm_mhz"].as_u64(), state["memory_mhz"].as_u64())
    {
        let rest = match (state["power_w"].as_f64(), state["temperature_c"].as_u64()) {
            (Some(power), Some(temperature)) => format!(", {power:.0} W, {temperature} °C"),
            _ => String::new(),
        };
        source.clocks = format!("{sm} of {most} MHz, memory {memory} MHz{rest}");
    }
    match kind {
        Kind::KernelBench => {
            let environment = &head["environment"];
            source.date = text(&environment["date"]);
            source.gpu = text(&environment["gpu"]);
            source.driver = driver(&environment["driver"], &environment["cuda"]);
            source.beside = format!("torch {}", text(&environment["torch"]));
        }
        Kind::Conformance => {
            // `NVIDIA H200, driver 580.159.04, CUDA 13.0`.
            let other = text(&head["other"]);
            let mut parts = other.split(", ");
            source.gpu = parts.next().unwrap_or_default().to_owned();
            let part = |name: &str| other.split(", ").find_map(|part| part.strip_prefix(name)).map(Value::from);
            source.driver = driver(&part("driver ").unwrap_or_default(), &part("CUDA ").unwrap_or_default());
        }
        _ => {}
    }
    if source.date.is_empty() {
        source.date = day_in(name).unwrap_or_default().to_owned();
    }
    source
}

/// The day that a file's name begins with, as those of results do: `2026-11-22-h200-agreement.json`.
fn day_in(name: &str) -> Option<&str> {
    let file = name.rsplit('/').next()?;
    let day = file.get(..10)?;
    let shape = |character: char| if character.is_ascii_digit() { '0' } else { character };
    (day.chars().map(shape).eq("0000-00-00".chars())).then_some(day)
}

/// `NVIDIA H200` of `CUDA device 0 (NVIDIA H200)`.
fn inner_name(device: &str) -> &str {
    match (device.find('('), device.strip_suffix(')')) {
        (Some(open), Some(without)) if device.starts_with("CUDA device ") => &without[open + 1..],
        _ => device,
    }
}
