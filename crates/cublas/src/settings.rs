//! What the environment says, read at the first call.
//!
//! | variable | values | default |
//! |---|---|---|
//! | `TILEWRIGHT_CUBLAS` | `on`; `off`: everything is passed on; `cpu`: the CPU executor computes, for tests with a cuBLAS of the host | `on` |
//! | `TILEWRIGHT_PRECISION` | a precision, or `guarantee=E`, `tolerance=E` | `fp32` |
//! | `TILEWRIGHT_MIN_GAIN` | microseconds by which a plan must be faster than cuBLAS can be; `all`: every plan is taken | 5 |
//! | `TILEWRIGHT_WORKSPACE` | the most memory beside the caller's for one product, in bytes or with `K`, `M`, `G` | `1G` |
//! | `TILEWRIGHT_CAPTURE_WORKSPACE` | the same while the stream is captured | the same; 0 where functions were looked up by `dlsym` |
//! | `TILEWRIGHT_VERBOSE` | `1`: a line for each call on standard error, and counts at the end | none |

use std::env;
use std::str::FromStr;
use std::sync::OnceLock;

use tilewright::plan::Options;
use tilewright::{Precision, Wanted};

/// The settings.
pub(crate) struct Settings {
    pub(crate) computes: Computes,
    pub(crate) options: Options,
    /// By how many microseconds plans must be faster; none takes all.
    pub(crate) min_gain_us: Option<f64>,
    pub(crate) workspace_bytes: usize,
    pub(crate) capture_workspace_bytes: Option<usize>,
}

/// What computes products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Computes {
    Gpu,
    Cpu,
    Nothing,
}

/// The settings, or what is wrong with them.
pub(crate) fn settings() -> Result<&'static Settings, &'static str> {
    static SETTINGS: OnceLock<Result<Settings, String>> = OnceLock::new();
    let settings = SETTINGS.get_or_init(|| {
        let settings = Settings::read();
        if let Err(error) = &settings {
            crate::report::warn(&format!("{error}; every call goes to cuBLAS"));
        }
        settings
    });
    settings.as_ref().map_err(String::as_str)
}

impl Settings {
    fn read() -> Result<Self, String> {
        let computes = |text: &str| match text {
            "on" => Ok(Computes::Gpu),
            "cpu" => Ok(Computes::Cpu),
            "off" => Ok(Computes::Nothing),
            _ => Err("expected on, off or cpu".to_owned()),
        };
        let gain = |text: &str| match text {
            "all" => Ok(None),
            _ => number(text).map(Some).map_err(|_| "expected microseconds, or all".to_owned()),
        };
        let capture_workspace_bytes = variable("TILEWRIGHT_CAPTURE_WORKSPACE", |text| bytes(text).map(Some), None)?;
        Ok(Self {
            computes: variable("TILEWRIGHT_CUBLAS", computes, Computes::Gpu)?,
            options: variable("TILEWRIGHT_PRECISION", Wanted::from_str, Precision::default().into())?.into(),
            min_gain_us: variable("TILEWRIGHT_MIN_GAIN", gain, Some(5.0))?,
            workspace_bytes: variable("TILEWRIGHT_WORKSPACE", bytes, 1 << 30)?,
            capture_workspace_bytes,
        })
    }
}

/// A variable's value; the default if it is not set, or empty.
fn variable<T>(name: &str, parse: impl Fn(&str) -> Result<T, String>, default: T) -> Result<T, String> {
    match env::var(name) {
        Ok(text) if !text.is_empty() => parse(&text).map_err(|why| format!("{name} is {text:?}: {why}")),
        Ok(_) | Err(env::VarError::NotPresent) => Ok(default),
        Err(error @ env::VarError::NotUnicode(_)) => Err(format!("{name}: {error}")),
    }
}

fn number(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|number: &f64| number.is_finite()).ok_or_else(|| "expected a number".to_owned())
}

/// A number of bytes, such as `512M`.
fn bytes(text: &str) -> Result<usize, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number = digits.parse::<usize>().ok().and_then(|number| number.checked_mul(1 << shift));
    number.ok_or_else(|| "expected bytes, such as 0, 4096 or 512M".to_owned())
}
