//! Where measured constants are written, and what they never replace.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::files;
use tilewright::plan::{
    CONSTANTS_VARIABLE, ConstantsFault, MeasuredConstants, MeasuredOn, constants_path, read_constants,
};

/// A file that constants of a GPU may be written to.
#[derive(Debug)]
pub(super) struct Target {
    path: PathBuf,
    /// Whether plans on the GPU go by it without being told to.
    is_default: bool,
}

impl Target {
    /// The file that is named, or the one that is looked for on this GPU. Made sure of before anything is measured: it can be written, and
    /// what is there is nothing but older constants of this GPU.
    ///
    /// # Errors
    /// [`Error::Usage`] where there is no directory for it; [`Error::ConstantsPlace`].
    pub(super) fn of(named: Option<&Path>, here: &MeasuredOn) -> Result<Self, Error> {
        let default = constants_path(here);
        let Some(path) = named.map(Path::to_owned).or_else(|| default.clone()) else {
            return Err(Error::Usage(format!(
                "there is no place for the constants of {}: neither XDG_CONFIG_HOME nor HOME is set, or {CONSTANTS_VARIABLE} says \
                 `none`; name a file with --output",
                here.gpu
            )));
        };
        let target = Self { is_default: default.as_ref() == Some(&path), path };
        target.check(here, named.is_none())?;
        Ok(target)
    }

    fn check(&self, here: &MeasuredOn, make_directory: bool) -> Result<(), Error> {
        let Self { path, .. } = self;
        let refused = |reason: String| Error::ConstantsPlace { path: path.clone(), reason };
        if make_directory && let Some(directory) = path.parent() {
            fs::create_dir_all(directory).map_err(|error| refused(format!("its directory cannot be made: {error}")))?;
        }
        files::check_writable(path).map_err(|error| match error {
            Error::File { source, .. } => refused(source.to_string()),
            error => error,
        })?;
        if !files::is_replaced(path) || !path.exists() {
            return Ok(());
        }
        match read_constants(path) {
            // Those of other kernels, or an older format, are what is to be replaced.
            Err(ConstantsFault::Schema(_) | ConstantsFault::Number { .. }) => Ok(()),
            Ok(older) => match older.check(here) {
                Ok(()) | Err(ConstantsFault::OtherKernels { .. }) => Ok(()),
                Err(fault) => Err(refused(format!("it has other constants, which stay as they are: {fault}"))),
            },
            Err(fault) => Err(refused(format!("what is there stays as it is: {fault}"))),
        }
    }

    /// Writes constants. The file is complete or as it was.
    ///
    /// # Errors
    /// [`Error::ConstantsPlace`].
    pub(super) fn write(&self, measured: &MeasuredConstants) -> Result<(), Error> {
        files::write_json(&self.path, measured).map_err(|error| match error {
            Error::File { path, source, .. } => Error::ConstantsPlace { path, reason: source.to_string() },
            error => error,
        })
    }

    /// What was written, and how it is used.
    pub(super) fn text(&self) -> String {
        let path = self.path.display();
        match self.is_default {
            true => format!("Written to {path}: plans on this GPU go by it from now on.\n"),
            false => format!(
                "Written to {path}. To go by it: --constants {path}, or {CONSTANTS_VARIABLE}={path} for every program.\n"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use tilewright::plan::Constants;

    fn here() -> MeasuredOn {
        MeasuredOn {
            gpu: "NVIDIA L4".to_owned(),
            compute_capability: (8, 9),
            multiprocessors: 58,
            kernels_digest: "abc".to_owned(),
        }
    }

    fn measured(on: MeasuredOn) -> MeasuredConstants {
        MeasuredConstants::new(on, String::new(), None, "today".to_owned(), Constants::built_in(Some((8, 9)), 58))
    }

    #[test]
    fn older_constants_of_the_gpu_are_replaced_and_nothing_else_is() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("constants.json");
        let target = || Target::of(Some(&path), &here());
        target().unwrap().write(&measured(here())).unwrap();
        assert_eq!(read_constants(&path).unwrap().date, "today");
        for ours in [
            serde_json::to_string(&measured(MeasuredOn { kernels_digest: "old".to_owned(), ..here() })).unwrap(),
            r#"{"kind": "tilewright-constants", "schema": 0}"#.to_owned(),
        ] {
            fs::write(&path, &ours).unwrap();
            assert!(target().is_ok(), "{ours}");
        }
        for (other, says) in [
            (
                serde_json::to_string(&measured(MeasuredOn { multiprocessors: 40, ..here() })).unwrap(),
                "other constants",
            ),
            (r#"{"schema": 1, "gpu": "NVIDIA L4", "entries": []}"#.to_owned(), "stays as it is"),
            ("my notes".to_owned(), "stays as it is"),
            (String::new(), "stays as it is"),
        ] {
            fs::write(&path, &other).unwrap();
            let refusal = target().unwrap_err().to_string();
            assert!(refusal.contains(says) && refusal.contains("constants.json"), "{refusal}");
            assert_eq!(fs::read_to_string(&path).unwrap(), other);
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "a temporary file is left");
    }

    #[test]
    fn where_nothing_can_be_written_is_told_before_anything_is_measured() {
        let directory = tempfile::TempDir::new().unwrap();
        let missing = directory.path().join("missing/constants.json");
        let refusal = Target::of(Some(&missing), &here()).unwrap_err().to_string();
        assert!(refusal.contains("No such file") && refusal.contains("--output"), "{refusal}");
        let refusal = Target::of(Some(directory.path()), &here()).unwrap_err().to_string();
        assert!(refusal.contains("directory"), "{refusal}");
        // To the superuser, nothing is forbidden.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o555)).unwrap();
        let forbidden = directory.path().join("constants.json");
        if fs::write(&forbidden, "").is_err() {
            let refusal = Target::of(Some(&forbidden), &here()).unwrap_err().to_string();
            assert!(refusal.contains("Permission denied"), "{refusal}");
        }
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    }
}
