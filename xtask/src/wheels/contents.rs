//! What is in a wheel, and what it asks of the system that loads it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use object::Endianness;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader as _, SectionHeader as _};

use super::{Machine, OLDEST_GLIBC};
use crate::workspace::{table, target_dir};

/// The native half of the package, in the wheel.
const NATIVE: &str = "tilewright/_native.abi3.so";

/// What a manylinux wheel may take from the system, of what the package could ask for: all of it is glibc's, or gcc's for unwinding.
const ALLOWED: [&str; 8] = [
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
];

/// A version of glibc.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version {
    pub(super) major: u32,
    pub(super) minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl Version {
    /// `GLIBC_2.17` or `GLIBC_2.2.5`, of which the third number is dropped.
    fn of_symbols(name: &str) -> Option<Self> {
        let mut numbers = name.strip_prefix("GLIBC_")?.split('.').map(str::parse);
        Some(Self { major: numbers.next()?.ok()?, minor: numbers.next()?.ok()? })
    }
}

/// What is in a wheel.
pub(super) struct Contents {
    pub(super) wheel: PathBuf,
    pub(super) machine: Machine,
    /// The bytes of the wheel, which is compressed.
    compressed: u64,
    needs: Needs,
    /// The bytes of each part of the native half.
    parts: BTreeMap<Part, usize>,
}

/// The parts of the native half.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Code,
    Ptx,
    Cubins,
    /// Constants beside these two, tables for unwinding, relocations.
    Other,
}

/// What the native half asks of the system.
#[derive(Debug, PartialEq, Eq)]
struct Needs {
    libraries: Vec<String>,
    /// The newest version of glibc's symbols that it uses.
    glibc: Option<Version>,
}

impl Contents {
    /// Reads a wheel.
    ///
    /// # Errors
    /// If it cannot be unpacked, or its native half is not what its name says.
    pub(super) fn read(wheel: &Path) -> anyhow::Result<Self> {
        let name = wheel.file_name().unwrap_or_default().to_string_lossy();
        let machine = Machine::of_wheel(&name)
            .with_context(|| format!("{name} is no name of a wheel for a machine that wheels are built for"))?;
        let native = extract(wheel, NATIVE)?;
        let elf = Elf::parse(&native).with_context(|| format!("{NATIVE} in {name}"))?;
        if elf.machine()? != machine {
            bail!("{name} has a library for another machine: {:?}", elf.machine()?);
        }
        let (ptx, cubins) = embedded(&native, &machine.target())?;
        let code = elf.section_bytes(".text")?;
        let parts = BTreeMap::from([
            (Part::Code, code),
            (Part::Ptx, ptx),
            (Part::Cubins, cubins),
            (Part::Other, native.len() - code - ptx - cubins),
        ]);
        let compressed = fs::metadata(wheel).with_context(|| format!("cannot read {}", wheel.display()))?.len();
        Ok(Self { wheel: wheel.to_owned(), machine, compressed, needs: elf.needs()?, parts })
    }

    /// What is wrong with it, each in a sentence.
    pub(super) fn faults(&self) -> Vec<String> {
        let name = self.wheel.file_name().unwrap_or_default().to_string_lossy();
        self.needs.faults().into_iter().map(|fault| format!("{name}: {fault}")).collect()
    }
}

impl Needs {
    fn faults(&self) -> Vec<String> {
        let strange = self.libraries.iter().filter(|library| !ALLOWED.contains(&library.as_str()));
        let mut faults: Vec<_> = strange
            .map(|library| {
                format!("it needs {library}, which a system need not have: link it statically, or do without")
            })
            .collect();
        if let Some(glibc) = self.glibc.filter(|&glibc| glibc > OLDEST_GLIBC) {
            faults.push(format!(
                "it needs symbols of glibc {glibc}, and is to run with {OLDEST_GLIBC}: `objdump -T` names them; it has to be \
                 linked for the older one, as `cargo xtask wheels` does"
            ));
        }
        faults
    }
}

/// A table of wheels.
pub(super) fn table_of(wheels: &[Contents]) -> impl fmt::Display {
    let mut table = table(["wheel", "MB", "unpacked", "code", "PTX", "cubins", "other", "glibc", "libraries"]);
    for Contents { wheel, compressed, needs, parts, .. } in wheels {
        let megabytes = |bytes: usize| format!("{:.1}", bytes as f64 / 1e6);
        let glibc = needs.glibc.map_or_else(|| "none".to_owned(), |glibc| glibc.to_string());
        table.add_row([
            wheel.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            format!("{:.1}", *compressed as f64 / 1e6),
            megabytes(parts.values().sum()),
            megabytes(parts[&Part::Code]),
            megabytes(parts[&Part::Ptx]),
            megabytes(parts[&Part::Cubins]),
            megabytes(parts[&Part::Other]),
            glibc,
            needs.libraries.join(" "),
        ]);
    }
    table
}

/// A file of a wheel. Python has what reads the archive.
fn extract(wheel: &Path, file: &str) -> anyhow::Result<Vec<u8>> {
    let program = "import sys, zipfile; sys.stdout.buffer.write(zipfile.ZipFile(sys.argv[1]).read(sys.argv[2]))";
    let (python, _) = workbench::python::find().context(workbench::python::ADVICE)?;
    let output =
        Command::new(python).args(["-c", program]).arg(wheel).arg(file).output().context("Python cannot be run")?;
    if !output.status.success() {
        bail!("{file} cannot be read from {}: {}", wheel.display(), String::from_utf8_lossy(&output.stderr));
    }
    Ok(output.stdout)
}

/// The bytes of PTX and of machine code in a library that was built in this target directory: those of the files that the kernels' build has
/// left there which the library has in it. One that was built elsewhere has others, and the answer is 0.
fn embedded(native: &[u8], target: &str) -> anyhow::Result<(usize, usize)> {
    let builds = target_dir().join(target).join("release/build");
    let mut found: BTreeMap<Vec<u8>, bool> = BTreeMap::new();
    for build in directory(&builds)? {
        for arch in directory(&build.join("out/gpu_kernels"))? {
            for file in directory(&arch)? {
                let is_ptx = file.extension().is_some_and(|extension| extension == "ptx");
                found.insert(fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?, is_ptx);
            }
        }
    }
    let files: Vec<_> =
        found.into_iter().map(|(bytes, is_ptx)| (bytes, if is_ptx { Part::Ptx } else { Part::Cubins })).collect();
    let present = occurring(native, files.iter().map(|(bytes, _)| bytes.as_slice()));
    let sum =
        |part| present.iter().map(|&index| &files[index]).filter(|file| file.1 == part).map(|file| file.0.len()).sum();
    Ok((sum(Part::Ptx), sum(Part::Cubins)))
}

/// Which of these occur in the data, by their indices. One pass, because data and files have many megabytes.
fn occurring<'a>(data: &[u8], files: impl Iterator<Item = &'a [u8]>) -> BTreeSet<usize> {
    /// By so many bytes at their beginning files are looked up, and by two of these the table below.
    const BEGINNING: usize = 16;
    let mut by_beginning: HashMap<&[u8], Vec<(usize, &[u8])>> = HashMap::new();
    let mut begins_one = vec![false; 1 << 16];
    let first_two = |bytes: &[u8]| usize::from(u16::from_le_bytes([bytes[0], bytes[1]]));
    for (index, file) in files.enumerate().filter(|(_, file)| file.len() >= BEGINNING) {
        by_beginning.entry(&file[..BEGINNING]).or_default().push((index, file));
        begins_one[first_two(file)] = true;
    }
    let mut present = BTreeSet::new();
    for (position, beginning) in data.windows(BEGINNING).enumerate() {
        if begins_one[first_two(beginning)]
            && let Some(candidates) = by_beginning.get(beginning)
        {
            let begins = candidates.iter().filter(|(_, file)| data[position..].starts_with(file));
            present.extend(begins.map(|(index, _)| index));
        }
    }
    present
}

/// What is in a directory; nothing if there is none.
fn directory(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
    entries.map(|entry| Ok(entry?.path())).collect()
}

/// A library of a 64-bit system.
struct Elf<'data> {
    data: &'data [u8],
    header: &'data FileHeader64<Endianness>,
    endian: Endianness,
}

impl<'data> Elf<'data> {
    fn parse(data: &'data [u8]) -> anyhow::Result<Self> {
        let header = FileHeader64::<Endianness>::parse(data).context("is no ELF file of 64 bits")?;
        Ok(Self { data, header, endian: header.endian()? })
    }

    fn machine(&self) -> anyhow::Result<Machine> {
        match self.header.e_machine(self.endian) {
            elf::EM_X86_64 => Ok(Machine::X86_64),
            elf::EM_AARCH64 => Ok(Machine::Aarch64),
            other => bail!("is for machine {other:?} of ELF's list, which no wheel is for"),
        }
    }

    fn section_bytes(&self, name: &str) -> anyhow::Result<usize> {
        let sections = self.header.sections(self.endian, self.data)?;
        let (_, section) = sections.section_by_name(self.endian, name.as_bytes()).context("has no machine code")?;
        Ok(usize::try_from(section.sh_size(self.endian))?)
    }

    fn needs(&self) -> anyhow::Result<Needs> {
        let sections = self.header.sections(self.endian, self.data)?;
        let mut glibc = None;
        if let Some((mut needed, strings)) = sections.gnu_verneed(self.endian, self.data)? {
            let strings = sections.strings(self.endian, self.data, strings)?;
            while let Some((_, mut versions)) = needed.next()? {
                while let Some(version) = versions.next()? {
                    let name = String::from_utf8_lossy(version.name(self.endian, strings)?);
                    glibc = glibc.max(Version::of_symbols(&name));
                }
            }
        }
        Ok(Needs { libraries: self.libraries()?, glibc })
    }

    /// The names of the libraries that it is linked with.
    fn libraries(&self) -> anyhow::Result<Vec<String>> {
        let table = self.header.sections(self.endian, self.data)?.dynamic_table(self.endian, self.data)?;
        let needed = table.iter().filter(|entry| entry.tag == elf::DT_NEEDED);
        needed.map(|entry| Ok(String::from_utf8_lossy(table.string(entry)?).into_owned())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        let version = |name| Version::of_symbols(name);
        assert_eq!(version("GLIBC_2.17"), Some(Version { major: 2, minor: 17 }));
        assert!(version("GLIBC_2.2.5") < version("GLIBC_2.17") && version("GLIBC_2.34") > Some(OLDEST_GLIBC));
        assert_eq!(version("GCC_3.0"), None);
        assert_eq!(version("GLIBC_PRIVATE"), None);
    }

    #[test]
    fn what_a_system_need_not_have_is_a_fault() {
        let needs = |libraries: &[&str], minor| Needs {
            libraries: libraries.iter().map(|&name| name.to_owned()).collect(),
            glibc: Some(Version { major: 2, minor }),
        };
        assert!(needs(&["libc.so.6", "libgcc_s.so.1"], 28).faults().is_empty());
        let faults = needs(&["libc.so.6", "libcuda.so.1"], 34).faults();
        assert_eq!(faults.len(), 2);
        assert!(faults[0].contains("it needs libcuda.so.1") && faults[1].contains("symbols of glibc 2.34"));
    }

    #[test]
    fn files_are_found_wherever_they_are_and_only_whole() {
        let (first, second) = ([b"// a long beginning, one".as_slice(), b"// a long beginning, two"], [7; 40]);
        let data = [b"x".as_slice(), first[1], b"// a long beginning, o", &second].concat();
        let files = [first[0], first[1], second.as_slice(), b"x", &[]];
        assert_eq!(occurring(&data, files.into_iter()), BTreeSet::from([1, 2]));
    }

    /// This program is a library of the system like any other.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[test]
    fn what_a_program_needs_is_read_from_it() {
        let program = fs::read(std::env::current_exe().unwrap()).unwrap();
        let elf = Elf::parse(&program).unwrap();
        assert!(elf.machine().unwrap().is_this() && elf.section_bytes(".text").unwrap() > 0);
        let needs = elf.needs().unwrap();
        assert!(needs.libraries.iter().any(|library| library == "libc.so.6"), "{needs:?}");
        assert!(needs.glibc >= Some(Version { major: 2, minor: 17 }), "{needs:?}");
        assert!(Elf::parse(&program[..32]).is_err() && Elf::parse(b"#!/bin/sh").is_err());
    }
}
