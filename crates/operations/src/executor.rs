//! The executor that operations run on: a thread of a kernel that never stops ends the program with a report, after a limit.

use std::env::{self, VarError};
use std::time::Duration;

use cuda_std::executor::{Checks, Executor};

use crate::Error;

/// The variable that says for how many seconds a thread may run without a stop; 0 for ever.
const VARIABLE: &str = "TILEWRIGHT_THREAD_LIMIT";

/// For how long it may without the variable. Between two stops a thread of a small case needs less than a second, on a busy machine too.
const DEFAULT: Duration = Duration::from_secs(60);

/// An executor with these checks, for operations: a thread of a kernel that never stops ends the program, after a minute or what
/// `TILEWRIGHT_THREAD_LIMIT` says.
///
/// ```
/// use cuda_std::executor::Checks;
/// use operations::Device;
///
/// let device = Device::with_executor(operations::executor(Checks::Full)?);
/// assert!(device.is_cpu());
/// # Ok::<(), operations::Error>(())
/// ```
///
/// # Errors
/// [`Error::ThreadLimit`].
pub fn executor(checks: Checks) -> Result<Executor, Error> {
    let value = match env::var(VARIABLE) {
        Ok(value) => Some(value),
        Err(VarError::NotPresent) => None,
        Err(VarError::NotUnicode(value)) => Some(value.to_string_lossy().into_owned()),
    };
    let executor = Executor::new(checks);
    Ok(match limit_of(value)? {
        Some(limit) => executor.thread_limit(limit),
        None => executor,
    })
}

/// The limit that the variable asks for, if any.
fn limit_of(value: Option<String>) -> Result<Option<Duration>, Error> {
    let Some(value) = value else { return Ok(Some(DEFAULT)) };
    match value.parse() {
        Ok(0) => Ok(None),
        Ok(seconds) => Ok(Some(Duration::from_secs(seconds))),
        Err(_) => Err(Error::ThreadLimit { variable: VARIABLE, value }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_sets_the_limit() {
        let limit = |value: &str| limit_of(Some(value.to_owned()));
        assert_eq!(limit_of(None).unwrap(), Some(DEFAULT));
        assert_eq!(limit("5").unwrap(), Some(Duration::from_secs(5)));
        assert_eq!(limit("0").unwrap(), None);
        for wrong in ["", "5s", "-1"] {
            let message = limit(wrong).unwrap_err().to_string();
            assert!(message.starts_with(&format!("TILEWRIGHT_THREAD_LIMIT is `{wrong}`")), "{message}");
        }
    }
}
