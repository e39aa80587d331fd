//! The trait [`Operation`]: its implementation names the kernels it launches, the sizes to test and to measure them with, their arguments, the
//! launch, and a reference in double precision with an error bound for each element. Checks, comparisons and measurements follow from these.

use std::fmt;

use cuda_std::KernelFacts;
use runtime::Device;

use crate::argument::{Argument, Values, Views};
use crate::error::{Error, Nearest};
use crate::expected::Expected;

/// What kernels are for: sizes, arguments, a launch, and what is to come of it. Everything else follows.
///
/// The kernels of an operation, and how they are launched, are for one file, this beside them. The [crate's
/// documentation](crate) has a whole one.
pub trait Operation: Sync {
    /// Its name, its sizes, its kernels, its cases.
    fn describe(&self) -> Description;

    /// The arguments for these sizes: inputs with their values, outputs.
    ///
    /// # Errors
    /// [`Error::UnknownSize`] from [`Sizes::get`].
    fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error>;

    /// Launches the kernels.
    ///
    /// # Errors
    /// Those of [`Device::launch`], of [`Sizes::get`] and of [`Views`].
    fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error>;

    /// What each output shall be, in double precision: for each output in the order of the arguments, for each element its value
    /// and how far from it a result may be.
    ///
    /// # Errors
    /// Those of [`Sizes::get`] and of [`Values::of`].
    fn expected(&self, sizes: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error>;

    /// How many floating-point operations it takes; 0 if that is of no interest. A fused multiply-add is two.
    fn operations(&self, sizes: &Sizes) -> f64;

    /// How many bytes have to be moved at least: `arguments` says it, where every input is read once and every output is written
    /// once. An operation that does not need all of an input says so here.
    ///
    /// # Errors
    /// Those of [`Operation::arguments`].
    fn bytes(&self, sizes: &Sizes) -> Result<f64, Error> {
        let arguments = self.arguments(sizes)?;
        Ok(arguments.iter().map(|argument| argument.least_bytes_moved()).sum())
    }

    /// What the floating-point operations are done by, which says how fast they can be: CUDA cores, unless said otherwise.
    fn units(&self) -> Units {
        Units::CudaCores
    }

    /// The same operation by this one of its kernels, if it chooses among several that compute the same: what `--kernel NAME` means then. It
    /// has the kernel's name, by which `--op` finds it, too, and its [cases](Description::small) are those that this kernel computes.
    fn by_kernel(&self, _kernel: &str) -> Option<&'static dyn Operation> {
        None
    }

    /// What a measurement on a GPU sets beside this operation, if there is something: a library's function that computes the same.
    ///
    /// # Errors
    /// Why there is none here, as where the library is missing. The measurement says so, and goes on without.
    fn baseline(&self, _device: &Device, _sizes: &Sizes) -> Result<Option<Box<dyn Baseline>>, Error> {
        Ok(None)
    }
}

/// What computes the same as an operation.
pub trait Baseline {
    /// What it is: the library's function, and how it computes.
    fn name(&self) -> String;

    /// Queues it, on the arguments of the operation, behind everything that was launched on the device before.
    ///
    /// # Errors
    /// Those of the library.
    fn launch(&mut self, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error>;
}

/// What does floating-point operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Units {
    /// CUDA cores, in fp32.
    CudaCores,
    /// Tensor cores. How fast they are depends on the types, and on more than the driver says: against their peak nothing is
    /// measured here.
    TensorCores,
}

/// What an operation is.
#[derive(Clone, Debug)]
pub struct Description {
    /// Its name: what `--op` takes.
    pub name: &'static str,
    /// The idea, in one line.
    pub idea: &'static str,
    /// The names of its sizes.
    pub sizes: &'static [&'static str],
    /// The facts of the kernels that it launches: [`Kernel::FACTS`](cuda_std::Kernel::FACTS).
    pub kernels: Vec<KernelFacts>,
    /// Small cases, for the executor: the sizes in the order of their names. Edges, odd sizes, nothing where that is allowed.
    pub small: Vec<Vec<usize>>,
    /// Large cases, for a GPU.
    pub large: Vec<Vec<usize>>,
    /// Which runs have the same bits.
    pub bits: Bits,
}

/// Which runs of an operation on the same arguments have the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bits {
    /// All of them: on a GPU and on the executor.
    Same,
    /// Those on one device. Another one rounds something differently.
    SameOnOneDevice,
    /// None, as where the order of additions is left to chance.
    Vary,
}

impl Description {
    /// All the small cases, or all cases. Each has as many sizes as there are names.
    ///
    /// ```
    /// # use operations::{Bits, Description, every};
    /// let small = every(&[&[0, 1, 33]]);
    /// let (name, idea, sizes, kernels) = ("doubles", "y = 2·x", &["n"][..], vec![]);
    /// let described = Description { name, idea, sizes, kernels, small, large: vec![vec![1 << 20]], bits: Bits::Same };
    /// assert_eq!(described.cases(false)?.len(), 3);
    /// assert_eq!(described.cases(true)?[3].to_string(), "n=1048576");
    /// # Ok::<(), operations::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::SizesMismatch`]; [`Error::NoCases`].
    pub fn cases(&self, with_large: bool) -> Result<Vec<Sizes>, Error> {
        let large = if with_large { &self.large[..] } else { &[] };
        let cases: Vec<Sizes> = self.small.iter().chain(large).map(|it| self.sizes_of(it)).collect::<Result<_, _>>()?;
        if cases.is_empty() {
            return Err(Error::NoCases { operation: self.name });
        }
        Ok(cases)
    }

    /// The case to begin with on a device: the last large one on a GPU, the last small one on the executor.
    ///
    /// # Errors
    /// [`Error::SizesMismatch`]; [`Error::NoCases`].
    pub fn last_case(&self, device: &Device) -> Result<Sizes, Error> {
        self.cases(!device.is_cpu())?.pop().ok_or(Error::NoCases { operation: self.name })
    }

    /// These numbers as sizes of the operation.
    ///
    /// # Errors
    /// [`Error::SizesMismatch`] if there are more or fewer than names.
    pub fn sizes_of(&self, values: &[usize]) -> Result<Sizes, Error> {
        if values.len() != self.sizes.len() {
            let (given, names) = (format!("{values:?}"), self.sizes.join(", "));
            return Err(Error::SizesMismatch { operation: self.name, given, names });
        }
        Ok(Sizes { operation: self.name, names: self.sizes, values: values.to_vec() })
    }

    /// Sizes that are written like `rows=3,cols=4`.
    ///
    /// # Errors
    /// [`Error::UnknownSize`]; [`Error::SizesMismatch`] for what is not written like that, or if one is missing or there twice.
    pub fn parse_sizes(&self, text: &str) -> Result<Sizes, Error> {
        let mismatch =
            || Error::SizesMismatch { operation: self.name, given: text.to_owned(), names: self.sizes.join(", ") };
        let mut values = vec![None; self.sizes.len()];
        for part in text.split(',').filter(|part| !part.trim().is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(mismatch)?;
            let index = self.index_of(name.trim())?;
            let value = value.trim().replace('_', "").parse().map_err(|_| mismatch())?;
            if values[index].replace(value).is_some() {
                return Err(mismatch());
            }
        }
        let values: Vec<usize> = values.into_iter().collect::<Option<_>>().ok_or_else(mismatch)?;
        self.sizes_of(&values)
    }

    fn index_of(&self, name: &str) -> Result<usize, Error> {
        self.sizes.iter().position(|known| *known == name).ok_or_else(|| Error::UnknownSize {
            operation: self.name,
            name: name.to_owned(),
            nearest: Nearest::of(name, self.sizes),
        })
    }
}

/// Every combination of these extents, the last one fastest: `every(&[&[0, 1, 33], &[32, 100]])` are six cases of two sizes.
pub fn every(extents: &[&[usize]]) -> Vec<Vec<usize>> {
    extents.iter().fold(vec![Vec::new()], |cases, extents| {
        let with = |case: &Vec<usize>, extent: usize| [&case[..], &[extent]].concat();
        cases.iter().flat_map(|case| extents.iter().map(move |&extent| with(case, extent))).collect()
    })
}

/// These cases, each with the sizes in the order of their names.
pub fn cases<const N: usize>(sizes: &[[usize; N]]) -> Vec<Vec<usize>> {
    sizes.iter().map(|sizes| sizes.to_vec()).collect()
}

/// The sizes of a case, by name. Displayed as `--sizes` takes them: `rows=3,cols=4`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    operation: &'static str,
    names: &'static [&'static str],
    values: Vec<usize>,
}

impl Sizes {
    /// The sizes of these names: `let [rows, cols] = sizes.get(["rows", "cols"])?;`.
    ///
    /// # Errors
    /// [`Error::UnknownSize`], with the three names that are nearest.
    pub fn get<const N: usize>(&self, names: [&str; N]) -> Result<[usize; N], Error> {
        let mut values = [0; N];
        for (value, name) in values.iter_mut().zip(names) {
            let Some(index) = self.names.iter().position(|known| *known == name) else {
                let nearest = Nearest::of(name, self.names);
                return Err(Error::UnknownSize { operation: self.operation, name: name.to_owned(), nearest });
            };
            *value = self.values[index];
        }
        Ok(values)
    }

    /// The same as `u32`, which is what most kernels take.
    ///
    /// # Errors
    /// [`Error::UnknownSize`]; [`Error::SizeTooLarge`].
    pub fn get_u32<const N: usize>(&self, names: [&str; N]) -> Result<[u32; N], Error> {
        let mut values = [0; N];
        for ((value, size), name) in values.iter_mut().zip(self.get(names)?).zip(names) {
            let (operation, name) = (self.operation, name.to_owned());
            *value = size.try_into().map_err(|_| Error::SizeTooLarge { operation, name, size })?;
        }
        Ok(values)
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, value)) in self.names.iter().zip(&self.values).enumerate() {
            write!(f, "{}{name}={value}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description() -> Description {
        Description {
            name: "sum",
            idea: "",
            sizes: &["rows", "cols"],
            kernels: Vec::new(),
            small: every(&[&[0, 1], &[5, 7, 9]]),
            large: vec![vec![1000, 2000]],
            bits: Bits::Same,
        }
    }

    #[test]
    fn sizes_are_written_and_read() {
        let description = description();
        let sizes = description.parse_sizes(" cols=1_000, rows=0 ").unwrap();
        assert_eq!(sizes.to_string(), "rows=0,cols=1000");
        assert_eq!(sizes.get(["cols", "rows"]).unwrap(), [1000, 0]);
        assert_eq!(description.parse_sizes(&sizes.to_string()).unwrap(), sizes);
        for wrong in ["", "rows=1", "rows=1,cols", "rows=1,cols=-2", "rows=1,cols=2,rows=1", "rows=1,cols=1e3"] {
            let error = description.parse_sizes(wrong).unwrap_err();
            assert!(matches!(error, Error::SizesMismatch { .. }), "{wrong}: {error}");
        }
        let error = description.parse_sizes("row=1,cols=2").unwrap_err().to_string();
        assert!(error.contains("`row`") && error.contains("did you mean `rows`"), "{error}");
        assert!(sizes.get(["colls"]).unwrap_err().to_string().contains("`cols`"));
        assert_eq!(sizes.get_u32(["cols"]).unwrap(), [1000]);
        let error = description.parse_sizes("rows=4294967296,cols=0").unwrap().get_u32(["cols", "rows"]).unwrap_err();
        assert!(matches!(&error, Error::SizeTooLarge { name, size: 0x1_0000_0000, .. } if name == "rows"), "{error}");
    }

    #[test]
    fn cases_have_as_many_sizes_as_there_are_names() {
        let mut description = description();
        let cases = description.cases(false).unwrap();
        assert_eq!((cases.len(), cases[4].to_string()), (6, "rows=1,cols=7".to_owned()));
        assert_eq!(description.cases(true).unwrap().len(), 7);
        description.small.push(vec![3]);
        let error = description.cases(false).unwrap_err().to_string();
        assert!(error.contains("[3]") && error.contains("rows, cols"), "{error}");
        description.small.clear();
        assert!(matches!(description.cases(false), Err(Error::NoCases { operation: "sum" })));
    }
}
