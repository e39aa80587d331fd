//! Tables of measured times and constants of the model as files, and the flags that name one of each.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use tilewright::plan::{ConstantsChoice, Table, Tables, read_constants};

use crate::Error;
use crate::files;

/// The part of a command line that says which tables and constants to use.
#[derive(Clone, Debug, Default, Args)]
pub struct TableFlag {
    /// A table of measured times to choose kernels by, of `tilewright tune` on this GPU; `none` to choose by the model alone
    /// [default: none]
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,

    /// Constants of this GPU for the model, of `tilewright tune --constants`; `none` for those that are built in
    /// [default: those of TILEWRIGHT_CONSTANTS, or of the user's configuration, if there are any for the GPU]
    #[arg(long, value_name = "FILE")]
    constants: Option<PathBuf>,
}

impl TableFlag {
    /// The tables that it names.
    ///
    /// # Errors
    /// Those of [`read`].
    pub fn tables(&self) -> Result<Tables, Error> {
        match self.table.as_deref().filter(|path| path.as_os_str() != "none") {
            None => Ok(Tables::None),
            Some(path) => Ok(Tables::This(Arc::new(read(path)?))),
        }
    }

    /// The constants that it names.
    ///
    /// # Errors
    /// [`tilewright::Error::Constants`] if the file cannot be read, or is none of constants.
    pub fn constants(&self) -> Result<ConstantsChoice, Error> {
        match &self.constants {
            None => Ok(ConstantsChoice::Stored),
            Some(path) if path.as_os_str() == "none" => Ok(ConstantsChoice::BuiltIn),
            Some(path) => match read_constants(path) {
                Ok(constants) => Ok(ConstantsChoice::This(Arc::new(constants))),
                Err(fault) => {
                    Err(tilewright::Error::Constants { path: Some(path.clone()), fault: Box::new(fault) }.into())
                }
            },
        }
    }
}

/// Reads a table from a file.
///
/// # Errors
/// [`Error::File`] if it cannot be read, [`Error::BadTable`] if it is none.
pub fn read(path: &Path) -> Result<Table, Error> {
    Table::parse(&files::read_text(path)?).map_err(|fault| Error::BadTable { path: path.to_owned(), fault })
}

/// Writes a table as JSON. The file is complete or not there: it gets its name when it is written.
///
/// # Errors
/// [`Error::File`].
pub fn write(path: &Path, table: &Table) -> Result<(), Error> {
    files::write_json(path, table)
}
