//! Tables of measured times as files, and the flag that names one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use tilewright::plan::{Table, Tables};

use crate::Error;
use crate::files;

/// The part of a command line that says which tables to use.
#[derive(Clone, Debug, Default, Args)]
pub struct TableFlag {
    /// A table of measured times to choose kernels by, of `tilewright tune` on this GPU; `none` to choose by the model alone
    /// [default: the table that is built in, if there is one for the GPU]
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
}

impl TableFlag {
    /// The tables that it names.
    ///
    /// # Errors
    /// Those of [`read`].
    pub fn tables(&self) -> Result<Tables, Error> {
        match &self.table {
            None => Ok(Tables::Embedded),
            Some(path) if path.as_os_str() == "none" => Ok(Tables::None),
            Some(path) => Ok(Tables::This(Arc::new(read(path)?))),
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
