//! Where the [constants](crate::plan::Constants) that a user has measured are stored, and how a device gets them when it is opened.
//!
//! ```text
//!  TILEWRIGHT_CONSTANTS=FILE    that file                      set by the user
//!  TILEWRIGHT_CONSTANTS=none    no file: those that are built in
//!  otherwise                    $XDG_CONFIG_HOME/tilewright/constants/nvidia-h200-132.json
//!                               $HOME/.config/tilewright/constants/…          without XDG_CONFIG_HOME
//! ```
//!
//! The name of the file is that of the GPU, with the number of its multiprocessors. A file is read once for each device that is opened:
//! no call waits for one. It is a hint, so one that is not right does not keep anybody from computing: it is left alone, and
//! [`Device::stored_constants`](crate::Device::stored_constants) and the explanation of every plan say why.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::constants::{ConstantsFault, MeasuredConstants, MeasuredOn};

/// The environment variable that names the file of constants, or says `none`.
pub const CONSTANTS_VARIABLE: &str = "TILEWRIGHT_CONSTANTS";

/// The most that a file of constants may have, in bytes: many times what any has.
const MAX_FILE: u64 = 4 << 20;

/// The constants that are stored for a GPU.
#[derive(Clone, Debug, Default)]
pub enum StoredConstants {
    /// There are none, or the user wants none to be used.
    #[default]
    None,
    /// These.
    These(Arc<MeasuredConstants>),
    /// There is a file, which is not used.
    Refused {
        /// The file.
        path: PathBuf,
        /// Why.
        fault: ConstantsFault,
    },
}

impl StoredConstants {
    /// Those of a GPU with these kernels, from where the environment says.
    pub(crate) fn of(here: &MeasuredOn) -> Self {
        Self::read_from(Place::of_environment(here), here)
    }

    fn read_from(place: Place, here: &MeasuredOn) -> Self {
        let (path, named) = match place {
            Place::Nowhere => return Self::None,
            Place::Named(path) => (path, true),
            Place::Default(path) => (path, false),
        };
        // What nobody has named need not be there.
        if !named && !path.exists() {
            return Self::None;
        }
        match read(&path).and_then(|measured| measured.check(here).map(|()| measured)) {
            Ok(measured) => Self::These(Arc::new(measured)),
            Err(fault) => Self::Refused { path, fault },
        }
    }

    /// Why a file is not used, if one is not.
    pub fn refusal(&self) -> Option<String> {
        match self {
            Self::Refused { path, fault } => Some(format!("the constants in {} are not used: {fault}", path.display())),
            Self::None | Self::These(_) => None,
        }
    }
}

/// Where constants are stored.
#[derive(Debug, PartialEq)]
enum Place {
    /// The user wants none, or has no directory for such.
    Nowhere,
    /// The file that the user has named.
    Named(PathBuf),
    /// The file of this GPU among the user's configuration.
    Default(PathBuf),
}

impl Place {
    fn of_environment(on: &MeasuredOn) -> Self {
        Self::of(CONSTANTS_VARIABLE, on, |name| std::env::var_os(name))
    }

    /// The same with a way to look up variables.
    fn of(variable: &str, on: &MeasuredOn, value: impl Fn(&str) -> Option<OsString>) -> Self {
        let set = |name: &str| value(name).filter(|value| !value.is_empty());
        match set(variable) {
            Some(none) if none == "none" => Self::Nowhere,
            Some(path) => Self::Named(path.into()),
            None => {
                // A relative one is to be ignored, says the specification of these variables.
                let directory = |name: &str| set(name).map(PathBuf::from).filter(|path| path.is_absolute());
                let home = || directory("HOME").map(|home| home.join(".config"));
                match directory("XDG_CONFIG_HOME").or_else(home) {
                    Some(configuration) => {
                        Self::Default(configuration.join("tilewright/constants").join(file_name(on)))
                    }
                    None => Self::Nowhere,
                }
            }
        }
    }
}

/// The name of the file of a GPU's constants.
fn file_name(on: &MeasuredOn) -> String {
    let mut name = String::new();
    for letter in on.gpu.chars() {
        match letter.is_ascii_alphanumeric() {
            true => name.push(letter.to_ascii_lowercase()),
            false if name.ends_with('-') || name.is_empty() => {}
            false => name.push('-'),
        }
    }
    format!("{}-{}.json", name.trim_end_matches('-'), on.multiprocessors)
}

/// The file where constants for a GPU are stored, and looked for: the one that the environment names, or else the one for this GPU in the
/// user's configuration. None where the environment says `none`, or names no home directory.
pub fn constants_path(on: &MeasuredOn) -> Option<PathBuf> {
    match Place::of_environment(on) {
        Place::Nowhere => None,
        Place::Named(path) | Place::Default(path) => Some(path),
    }
}

/// Reads constants from a file.
///
/// # Errors
/// [`ConstantsFault::File`] if it cannot be read; those of [`MeasuredConstants::parse`].
pub fn read(path: &Path) -> Result<MeasuredConstants, ConstantsFault> {
    let text = || {
        // Opening a FIFO would wait for whoever writes there.
        if !std::fs::metadata(path)?.is_file() {
            return Err(std::io::Error::other("it is no regular file"));
        }
        let mut text = String::new();
        File::open(path)?.take(MAX_FILE + 1).read_to_string(&mut text)?;
        match text.len() as u64 {
            0..=MAX_FILE => Ok(text),
            _ => Err(std::io::Error::other(format!("it has more than {} MiB, and no constants have", MAX_FILE >> 20))),
        }
    };
    let text = text().map_err(|error| ConstantsFault::File(format!("cannot read it: {error}")))?;
    let mut measured = MeasuredConstants::parse(&text)?;
    measured.path = Some(path.to_owned());
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constants::Constants;

    fn on() -> MeasuredOn {
        MeasuredOn {
            gpu: "NVIDIA H200 (MIG 1g.18gb)".to_owned(),
            compute_capability: (9, 0),
            multiprocessors: 16,
            kernels_digest: "abc".to_owned(),
        }
    }

    #[test]
    fn the_environment_says_where_constants_are() {
        let place = |variables: &[(&str, &str)]| {
            let value = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
            Place::of(CONSTANTS_VARIABLE, &on(), value)
        };
        let file = "tilewright/constants/nvidia-h200-mig-1g-18gb-16.json";
        let default = |directory: &str| Place::Default(Path::new(directory).join(file));
        assert_eq!(place(&[]), Place::Nowhere);
        assert_eq!(place(&[("HOME", "/home/u")]), default("/home/u/.config"));
        assert_eq!(place(&[("HOME", "/home/u"), ("XDG_CONFIG_HOME", "/etc/u")]), default("/etc/u"));
        assert_eq!(place(&[("HOME", "/home/u"), ("XDG_CONFIG_HOME", "relative")]), default("/home/u/.config"));
        assert_eq!(place(&[("HOME", "/home/u"), (CONSTANTS_VARIABLE, "none")]), Place::Nowhere);
        assert_eq!(place(&[("HOME", "/home/u"), (CONSTANTS_VARIABLE, "")]), default("/home/u/.config"));
        assert_eq!(place(&[("HOME", "/home/u"), (CONSTANTS_VARIABLE, "c.json")]), Place::Named("c.json".into()));
    }

    #[test]
    fn a_file_is_used_if_it_is_right_and_otherwise_left_alone_with_the_reason() {
        let directory = std::env::temp_dir().join(format!("tilewright-stored-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("constants.json");
        let named = || StoredConstants::read_from(Place::Named(path.clone()), &on());
        let by_default = || StoredConstants::read_from(Place::Default(path.clone()), &on());
        assert!(matches!(by_default(), StoredConstants::None));
        assert!(named().refusal().unwrap().contains("cannot read it: No such file"), "{:?}", named());

        let constants = Constants::built_in(Some((9, 0)), 16);
        let measured = MeasuredConstants::new(on(), String::new(), None, "today".to_owned(), constants);
        std::fs::write(&path, serde_json::to_string(&measured).unwrap()).unwrap();
        for stored in [named(), by_default()] {
            let StoredConstants::These(these) = &stored else { panic!("{stored:?}") };
            assert!(
                these.source().contains("today") && these.source().contains("constants.json"),
                "{}",
                these.source()
            );
            assert_eq!(stored.refusal(), None);
        }
        let other = MeasuredOn { multiprocessors: 32, ..on() };
        let refused = StoredConstants::read_from(Place::Named(path.clone()), &other).refusal().unwrap();
        assert!(refused.contains("constants.json are not used: they were measured on NVIDIA H200 (MIG"), "{refused}");
        std::fs::write(&path, "{").unwrap();
        assert!(by_default().refusal().unwrap().contains("it is no file of constants"));
        let of_directory = StoredConstants::read_from(Place::Default(directory.clone()), &on()).refusal().unwrap();
        assert!(of_directory.contains("no regular file"), "{of_directory}");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
