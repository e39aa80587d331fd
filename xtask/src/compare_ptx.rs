//! `cargo xtask compare-ptx`: whether two commits have the same kernels.
//!
//! What is compared is the [normal form](normal_form) of each kernel, which does not depend on names, on numbers of labels and
//! registers, or on what else is in the module. A commit is built by its own builder, in a worktree that is there meanwhile, in
//! a target directory that stays; the PTX that came of it is kept, so that a second comparison with the same commit builds
//! nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use cuda_builder::inspect::{
    CUDA_BIN_VARIABLE, KernelResources, Ptx, ToolError, assemble, normal_form, split_by_kernel,
};
use cuda_builder::toolchain::Toolchain;
use cuda_builder::{Arch, CudaBuilder};
use rayon::prelude::*;
use serde_json::{Value, json};

use crate::workspace::{command, first_line, root, table, target_dir};

/// The options of `compare-ptx`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The older side: a commit, or a directory with files of PTX.
    base: String,
    /// The newer side, likewise [default: the working tree].
    head: Option<String>,
    /// The architectures, separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = [Arch::Sm80, Arch::Sm90a])]
    arch: Vec<Arch>,
    /// The crate with the kernels, below the repository's root.
    #[arg(long, value_name = "DIR", default_value = "gpu-kernels")]
    crate_dir: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Old and new names of kernels.
const RENAMED: &str = include_str!("../renamed-kernels.txt");

/// What of a difference is shown: lines on each side, and opcodes.
const SHOWN: usize = 6;

/// The kernels of one side: for an architecture and a name, the kernel's own module.
type Side = BTreeMap<(String, String), String>;

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let base = arguments.side(&arguments.base)?;
    let head = match &arguments.head {
        Some(head) => arguments.side(head)?,
        None => arguments.working_tree()?,
    };
    let comparison = compare(base, head, &renames(RENAMED)?)?;
    if arguments.json {
        println!("{:#}", comparison.json());
    } else {
        comparison.print();
    }
    let Comparison { equal, different, only_base, only_head } = &comparison;
    if different.is_empty() && only_base.is_empty() && only_head.is_empty() {
        return Ok(());
    }
    let (different, only_base, only_head) = (different.len(), only_base.len(), only_head.len());
    bail!(
        "{equal} kernels are equal, {different} differ, {only_base} are in the older side only, {only_head} in the newer"
    )
}

impl Arguments {
    /// The kernels of a directory with PTX, or of a commit.
    fn side(&self, what: &str) -> anyhow::Result<Side> {
        if Path::new(what).is_dir() {
            return read(Path::new(what));
        }
        let revision = format!("{what}^{{commit}}");
        let commit = first_line(command("git", &["rev-parse", "--quiet", "--verify", "--end-of-options", &revision]))
            .with_context(|| format!("`{what}` is neither a directory nor a commit of this repository"))?;
        read(&self.built(&commit)?)
    }

    fn working_tree(&self) -> anyhow::Result<Side> {
        let build = CudaBuilder::new(root().join(&self.crate_dir))
            .archs(&self.arch)
            .target_dir(target_dir().join("cuda-builder"))
            .build()?;
        let mut side = Side::new();
        for module in build.modules {
            for kernel in module.kernels {
                side.insert((module.arch.to_string(), kernel.name), kernel.ptx);
            }
        }
        Ok(side)
    }

    /// The directory with the PTX of a commit, which is built now if it has not been before.
    fn built(&self, commit: &str) -> anyhow::Result<PathBuf> {
        let place = target_dir().join("compare-ptx");
        let toolchain = Toolchain::find(root()).map_err(cuda_builder::Error::from)?;
        let mut hasher = DefaultHasher::new();
        (format!("{toolchain:?}"), &self.arch, &self.crate_dir).hash(&mut hasher);
        let result = place.join("ptx").join(format!("{commit}-{:016x}", hasher.finish()));
        if result.is_dir() {
            return Ok(result);
        }
        fs::create_dir_all(&place)?;
        let lock = File::create(place.join("lock"))?;
        lock.lock()?;

        let tree = Worktree::new(place.join("worktree"), commit)?;
        let unfinished = place.join("unfinished");
        let _ = fs::remove_dir_all(&unfinished);
        let archs: Vec<&str> = self.arch.iter().map(|arch| arch.name()).collect();
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        eprintln!("building the kernels of {commit}");
        let output = Command::new(cargo)
            .args(["run", "--quiet", "--package", "xtask", "--", "build-ptx", "--arch", &archs.join(","), "--out"])
            .arg(&unfinished)
            .arg("--crate-dir")
            .arg(tree.path.join(&self.crate_dir))
            .env("CARGO_TARGET_DIR", place.join("target"))
            // What that commit's program has to say of registers is not wanted, and takes it minutes.
            .env(CUDA_BIN_VARIABLE, place.join("no-tools"))
            .current_dir(&tree.path)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .context("running cargo")?;
        if !output.status.success() {
            bail!("the kernels of {commit} cannot be built ({}); why is said above", output.status);
        }
        fs::create_dir_all(place.join("ptx"))?;
        fs::rename(&unfinished, &result).with_context(|| format!("there is no PTX in {}", unfinished.display()))?;
        Ok(result)
    }
}

/// A worktree of the repository, which ends with the value.
struct Worktree {
    path: PathBuf,
}

impl Worktree {
    fn new(path: PathBuf, commit: &str) -> anyhow::Result<Self> {
        let tree = Self { path };
        // One that an interrupted run has left.
        tree.remove();
        let mut add = command("git", &["worktree", "add", "--quiet", "--force", "--detach"]);
        let status = add.arg(&tree.path).arg(commit).status().context("running git")?;
        if status.success() { Ok(tree) } else { bail!("git cannot make a worktree in {}", tree.path.display()) }
    }

    fn remove(&self) {
        let mut remove = command("git", &["worktree", "remove", "--force", "--force"]);
        // What cannot be removed is in the way the next time, and git says so then.
        let _ = remove.arg(&self.path).stderr(Stdio::null()).status();
    }
}

impl Drop for Worktree {
    fn drop(&mut self) {
        self.remove();
    }
}

/// The kernels in the files of PTX in a directory.
fn read(directory: &Path) -> anyhow::Result<Side> {
    let mut side = Side::new();
    let mut files: Vec<PathBuf> =
        fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<_>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "ptx"));
    files.sort();
    for file in &files {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let target = Ptx::parse(&text).with_context(|| file.display().to_string())?.target;
        for (name, module) in split_by_kernel(&text).with_context(|| file.display().to_string())? {
            if side.insert((target.clone(), name.clone()), module).is_some() {
                bail!("{} has two kernels `{name}` for {target}", directory.display());
            }
        }
    }
    if side.is_empty() {
        bail!("{} has no kernel in a file of PTX", directory.display());
    }
    Ok(side)
}

/// The pairs of a table of renames.
fn renames(text: &str) -> anyhow::Result<HashMap<&str, &str>> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| match line.split_ascii_whitespace().collect::<Vec<_>>()[..] {
            [old, new] => Ok((old, new)),
            _ => bail!("xtask/renamed-kernels.txt: `{line}` is not an old name and a new one"),
        })
        .collect()
}

/// What a kernel of the older side is called on the newer one, whatever it has been called in between.
fn present_name(key: &(String, String), head: &Side, renames: &HashMap<&str, &str>) -> (String, String) {
    let mut present = key.clone();
    // No kernel has had more names than there are renames, unless they go in a circle.
    for _ in 0..=renames.len() {
        if head.contains_key(&present) {
            return present;
        }
        let Some(&new) = renames.get(present.1.as_str()) else { break };
        new.clone_into(&mut present.1);
    }
    key.clone()
}

/// What has come of it. Kernels are named by architecture and name.
struct Comparison {
    equal: usize,
    different: Vec<Difference>,
    only_base: Vec<(String, String)>,
    only_head: Vec<(String, String)>,
}

/// A kernel that is not the same on both sides. Of a pair, the older side comes first.
struct Difference {
    arch: String,
    names: [String; 2],
    /// The lines of the normal form that are not the same at its beginning and at its end.
    lines: [Vec<String>; 2],
    /// The number of the first of them.
    at: usize,
    /// Opcodes that there are not equally many of.
    opcodes: Vec<(String, [usize; 2])>,
    /// What the assembler says, if it is there.
    resources: [Option<Result<KernelResources, String>>; 2],
}

fn compare(base: Side, head: Side, renames: &HashMap<&str, &str>) -> anyhow::Result<Comparison> {
    let pairs: Vec<_> = base.iter().map(|(key, ptx)| (key, ptx, present_name(key, &head, renames))).collect();
    let found: BTreeSet<_> = pairs.iter().map(|(_, _, present)| present.clone()).collect();
    let only_base = pairs.iter().filter(|(.., present)| !head.contains_key(present)).map(|(key, ..)| (*key).clone());
    let only_head = head.keys().filter(|key| !found.contains(*key)).cloned();
    let (only_base, only_head) = (only_base.collect(), only_head.collect());
    let both: Vec<_> =
        pairs.iter().filter_map(|(key, ptx, present)| Some((*key, *ptx, present, head.get(present)?))).collect();
    let compared = both.par_iter().map(|&(key, old, present, new)| {
        let form = |ptx: &str| normal_form(ptx).with_context(|| format!("{} for {}", key.1, key.0));
        let (old_form, new_form) = (form(old)?, form(new)?);
        let differs = old_form != new_form;
        Ok(differs.then(|| Difference::new([&key.1, &present.1], &key.0, [old, new], [&old_form, &new_form])))
    });
    let compared = compared.collect::<anyhow::Result<Vec<_>>>()?;
    let equal = compared.iter().filter(|difference| difference.is_none()).count();
    Ok(Comparison { equal, different: compared.into_iter().flatten().collect(), only_base, only_head })
}

impl Difference {
    fn new(names: [&str; 2], arch: &str, ptx: [&str; 2], forms: [&str; 2]) -> Self {
        let [old, new] = forms.map(|form| form.lines().collect::<Vec<_>>());
        let same = |(old, new): &(&&str, &&str)| old == new;
        let at = old.iter().zip(&new).take_while(same).count();
        let end = old[at..].iter().rev().zip(new[at..].iter().rev()).take_while(same).count();
        let lines =
            [&old, &new].map(|lines| lines[at..lines.len() - end].iter().map(|&line| line.to_owned()).collect());
        let mut opcodes: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
        for (side, lines) in [&old, &new].into_iter().enumerate() {
            for opcode in lines.iter().filter_map(|line| opcode(line)) {
                opcodes.entry(opcode).or_default()[side] += 1;
            }
        }
        opcodes.retain(|_, [old, new]| old != new);
        let mut opcodes: Vec<_> = opcodes.into_iter().map(|(opcode, counts)| (opcode.to_owned(), counts)).collect();
        opcodes.sort_by_key(|(_, [old, new])| std::cmp::Reverse(old.abs_diff(*new)));
        let resources = ptx.map(|ptx| resources(ptx, arch));
        Self { arch: arch.to_owned(), names: names.map(str::to_owned), lines, at: at + 1, opcodes, resources }
    }

    fn name(&self) -> String {
        let [old, new] = &self.names;
        if old == new { new.clone() } else { format!("{new} (was {old})") }
    }

    fn print(&self) {
        println!("\n{} for {}, line {} of the normal form:", self.name(), self.arch, self.at);
        for (sign, lines) in ['-', '+'].into_iter().zip(&self.lines) {
            for line in lines.iter().take(SHOWN) {
                println!("  {sign} {line}");
            }
            if lines.len() > SHOWN {
                println!("  {sign} … and {} lines more up to the last difference", lines.len() - SHOWN);
            }
        }
        let counts = self.opcodes.iter().take(SHOWN).map(|(opcode, [old, new])| format!("{opcode} {old} → {new}"));
        let counts = counts.collect::<Vec<_>>().join(", ");
        let more = self.opcodes.len().saturating_sub(SHOWN);
        match (counts.is_empty(), more) {
            (true, _) => println!("  the same instructions as often"),
            (false, 0) => println!("  {counts}"),
            (false, _) => println!("  {counts}, and {more} more"),
        }
    }
}

/// The opcode on a line of a normal form.
fn opcode(line: &str) -> Option<&str> {
    let word = line.split(' ').find(|word| !word.starts_with('@'))?;
    word.starts_with(|c: char| c.is_ascii_alphabetic())
        .then(|| word.trim_end_matches(';'))
        .filter(|_| !line.ends_with(':'))
}

/// What the assembler says that a kernel needs, or why it refuses it; `None` without an assembler.
fn resources(ptx: &str, arch: &str) -> Option<Result<KernelResources, String>> {
    let arch = arch.parse::<Arch>().ok()?;
    match assemble(ptx, arch) {
        Ok(assembly) => assembly.kernels.into_iter().next().map(Ok),
        Err(ToolError::Missing(_)) => None,
        Err(error) => Some(Err(error.to_string())),
    }
}

impl Comparison {
    fn print(&self) {
        println!("{} kernels are equal, {} differ", self.equal, self.different.len());
        for (side, kernels) in [("older", &self.only_base), ("newer", &self.only_head)] {
            for (arch, name) in kernels {
                println!("only in the {side} side: {name} for {arch}");
            }
        }
        for difference in &self.different {
            difference.print();
        }
        if self.different.is_empty() {
            return;
        }
        let mut rows = table(["kernel", "arch", "registers", "spills", "stack", "shared"]);
        for difference in &self.different {
            let both = |show: fn(&KernelResources) -> String| {
                let [old, new] = difference.resources.each_ref().map(|side| match side {
                    Some(Ok(resources)) => show(resources),
                    Some(Err(_)) => "refused".to_owned(),
                    None => "-".to_owned(),
                });
                if old == new { old } else { format!("{old} → {new}") }
            };
            rows.add_row([
                difference.name(),
                difference.arch.clone(),
                both(|resources| resources.registers.to_string()),
                both(|resources| format!("{} B", resources.spill_bytes())),
                both(|resources| format!("{} B", resources.stack_bytes)),
                both(|resources| format!("{} B", resources.shared_bytes)),
            ]);
        }
        println!("\n{rows}");
        for (difference, refusal) in self.different.iter().flat_map(|difference| {
            let refusals = difference.resources.iter().flatten().filter_map(|side| side.as_ref().err());
            refusals.map(move |refusal| (difference, refusal))
        }) {
            println!("{} for {}: {refusal}", difference.name(), difference.arch);
        }
    }

    fn json(&self) -> Value {
        let kernels = |kernels: &[(String, String)]| -> Value {
            kernels.iter().map(|(arch, name)| json!({ "arch": arch, "kernel": name })).collect()
        };
        let resources = |side: &Option<Result<KernelResources, String>>| match side {
            None => Value::Null,
            Some(Err(refusal)) => json!({ "refused": refusal }),
            Some(Ok(resources)) => json!({
                "registers": resources.registers,
                "spill_bytes": resources.spill_bytes(),
                "stack_bytes": resources.stack_bytes,
                "shared_bytes": resources.shared_bytes,
            }),
        };
        let different: Value = (self.different.iter())
            .map(|difference| {
                let side = |side: usize| {
                    json!({
                        "kernel": difference.names[side],
                        "lines": difference.lines[side].iter().take(SHOWN).collect::<Vec<_>>(),
                        "resources": resources(&difference.resources[side]),
                    })
                };
                let opcodes: serde_json::Map<_, _> =
                    difference.opcodes.iter().map(|(opcode, counts)| (opcode.clone(), json!(counts))).collect();
                json!({
                    "arch": difference.arch,
                    "line": difference.at,
                    "base": side(0),
                    "head": side(1),
                    "opcodes": opcodes,
                })
            })
            .collect();
        json!({
            "equal": self.equal,
            "different": different,
            "only_base": kernels(&self.only_base),
            "only_head": kernels(&self.only_head),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(kernels: &[(&str, &str)]) -> Side {
        let module = |name: &str, body: &str| {
            format!(".version 7.4\n.target sm_80\n.visible .entry {name}() .reqntid 32 {{ {body} ret; }}\n")
        };
        kernels.iter().map(|(name, body)| (("sm_80".to_owned(), (*name).to_owned()), module(name, body))).collect()
    }

    fn compared(base: &[(&str, &str)], head: &[(&str, &str)], names: &'static str) -> Comparison {
        compare(side(base), side(head), &renames(names).unwrap()).unwrap()
    }

    const ADD: &str = "add.s32 %r1, %r2, 1;";

    #[test]
    fn renamed_kernels_are_the_same_kernels() {
        let comparison = compared(&[("a", ADD), ("b", ADD)], &[("b", ADD), ("d", ADD)], "# names\na c\nc d\n");
        assert_eq!(comparison.equal, 2);
        assert!(comparison.only_base.is_empty() && comparison.only_head.is_empty());
        // A circle ends.
        let comparison = compared(&[("a", ADD)], &[("x", ADD)], "a b\nb a");
        assert_eq!((comparison.only_base.len(), comparison.only_head.len()), (1, 1));
        assert!(renames("a b c").is_err());
    }

    #[test]
    fn differences_are_shown_by_line_and_by_opcode() {
        let other = "add.s32 %r1, %r2, 2; mul.lo.s32 %r1, %r1, %r1;";
        let comparison = compared(&[("a", ADD), ("gone", ADD)], &[("a", other), ("new", ADD)], "");
        assert_eq!(comparison.equal, 0);
        let [difference] = &comparison.different[..] else { panic!("one") };
        assert_eq!(difference.lines[0], ["add.s32 %r1, %r2, 1;"]);
        assert_eq!(difference.lines[1].len(), 2);
        assert_eq!(difference.opcodes, [("mul.lo.s32".to_owned(), [0, 1])]);
        let json = comparison.json();
        assert_eq!(json["different"][0]["base"]["lines"][0], "add.s32 %r1, %r2, 1;");
        assert_eq!(json["only_base"][0]["kernel"], "gone");
        assert_eq!(json["only_head"][0]["kernel"], "new");
    }

    #[test]
    fn directories_are_read() {
        let directory = tempfile::tempdir().unwrap();
        assert!(read(directory.path()).is_err());
        for (name, ptx) in side(&[("a", ADD), ("b", ADD)]) {
            fs::write(directory.path().join(format!("{}.ptx", name.1)), ptx).unwrap();
        }
        assert_eq!(read(directory.path()).unwrap().len(), 2);
        fs::copy(directory.path().join("a.ptx"), directory.path().join("c.ptx")).unwrap();
        assert!(read(directory.path()).unwrap_err().to_string().contains("two kernels `a`"));
    }

    #[test]
    fn the_table_of_renames_is_in_order() {
        renames(RENAMED).unwrap();
    }
}
