//! The pass of the link step: what makes device code of what rustc emits.
//!
//! LLVM knows shared memory as address space 3 and global memory as address space 1; Rust has one kind of pointer, and
//! rustc puts every static into address space 0, the generic one. So the attribute macro and `cuda_std` leave marks that
//! get through rustc to LLVM's textual IR, and this pass turns them into what LLVM wants to see:
//!
//! ```text
//! @TILE = internal global [1024 x i8] undef, section ".shared", align 4
//!      →  @TILE = internal addrspace(3) global [1024 x i8] undef, align 4
//! ptr @TILE                                                  (every use)
//!      →  ptr addrspacecast (ptr addrspace(3) @TILE to ptr)
//! @WEIGHTS = internal constant [36 x i8] c"…", section ".constant", align 4
//!      →  @WEIGHTS = internal addrspace(4) constant [36 x i8] c"…", align 4          (and every use likewise)
//! @__tilewright_dynamic_shared = external global [0 x i8]
//!      →  @__tilewright_dynamic_shared = external addrspace(3) global [0 x i8], align 1024
//! %6 = tail call ptr @__tilewright_address_space_global(ptr %0)
//!      →  %tilewright.cast.6 = addrspacecast ptr %0 to ptr addrspace(1)
//!         %6 = addrspacecast ptr addrspace(1) %tilewright.cast.6 to ptr
//! %7 = tail call i32 @__tilewright_address_in_shared(ptr %1)
//!      →  %tilewright.cast.7 = addrspacecast ptr %1 to ptr addrspace(3)
//!         %7 = ptrtoint ptr addrspace(3) %tilewright.cast.7 to i32
//! define float @f(ptr %0) {                                     (a function that all callers give an array in shared memory: `arguments`)
//!      →  define float @f(ptr %0) {
//!           %tilewright.cast.0 = addrspacecast ptr %0 to ptr addrspace(3)       (and one back, for all that uses it)
//! @__tilewright_facts_k = constant [72 x i8] c"…"                      (see the module `entry`)
//! define ptx_kernel void @k(ptr %map) #0 {
//!      →  define ptx_kernel void @k(ptr byval([128 x i8]) align 64 "nvvm.grid_constant" %map)
//!                                           "nvvm.reqntid"="32,8,1" "nvvm.minctasm"="2" #0 {
//! define ptx_kernel void @k([13 x i32] %0) {                    (a parameter that is indexed at run time: `parameters`)
//!      →  define ptx_kernel void @k(ptr byval([13 x i32]) align 4 "nvvm.grid_constant" %0) {
//! start:                                                        (the first line of a kernel's body, from sm_90 on)
//!      →  start:
//!           call void asm sideeffect "griddepcontrol.wait;", "~{memory}"()
//! "target-cpu"="sm_80"
//!      →  "target-cpu"="sm_90a"                              (the architecture asked for)
//! ```
//!
//! Address-space inference, an ordinary pass of LLVM, then follows each cast to the loads and stores. It has to run before
//! anything that would take a cast to address space 1 and back for a no-op and remove it.
//!
//! The pass reads line by line, which LLVM's printer makes possible: one definition or instruction per line. What has a
//! mark but not a known shape is an error, so that no mark is ever lost in silence.

pub(crate) mod arguments;
pub(crate) mod convergence;
mod copies;
mod entry;
mod ir;
mod marker;
mod panics;
mod parameters;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use rustc_demangle::demangle;

use crate::Arch;
pub(crate) use convergence::mark_convergent;
pub(crate) use copies::copied;
pub(crate) use entry::Entry;
use ir::Variable;
pub(crate) use ir::{entry_name, global_names};
pub(crate) use panics::{with_channel, with_reports};

/// The section that `#[kernel]` gives to a static shared array.
const SHARED_SECTION: &str = ".shared";
/// The section that `#[constant]` gives to a static.
const CONSTANT_SECTION: &str = ".constant";
/// The name under which `cuda_std` declares the dynamic shared memory.
const DYNAMIC_SHARED: &str = "__tilewright_dynamic_shared";
/// What the name of a kernel stands behind that was left out: a static without contents.
const LEFT_OUT: &str = "__tilewright_left_out_";

/// The first instruction of a kernel where launches overlap (programmatic dependent launch): all that kernels before it have written is in
/// memory after it. So the blocks of a kernel may be sent to the multiprocessors while the one before it ends, which takes a microsecond less.
/// Where a launch does not allow that, the instruction does nothing.
const WAIT_FOR_EARLIER_KERNELS: &str = "  call void asm sideeffect \"griddepcontrol.wait;\", \"~{memory}\"()\n";

/// Why the marks in a kernel crate's code cannot be turned into device code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PassError {
    /// An entry point does not come from the attribute macro.
    #[error("entry point `{kernel}` has no launch bounds: make it a kernel with `#[kernel(block = …)]`")]
    ForeignEntry {
        /// The entry point.
        kernel: String,
    },
    /// The facts of a kernel cannot be read, or do not fit its parameters.
    #[error("the facts of `{kernel}` cannot be used: {reason}. Are `cuda_std` and `cuda_builder` of one version?")]
    MalformedEntry {
        /// The entry point.
        kernel: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A static in the shared section is no variable that shared memory can hold.
    #[error(
        "static `{name}` cannot be in shared memory: {reason}. Declare it as `Shared<…>` inside a `#[kernel]` function"
    )]
    NotShareable {
        /// The static.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A static in the section of constants is none.
    #[error(
        "static `{name}` cannot be in constant memory: {reason}. Declare it as `#[constant] static {name}: [T; N] = …;`"
    )]
    NotConstant {
        /// The static.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The initial value of a static contains the address of a shared array.
    #[error(
        "static `{holder}` holds the address of the shared array `{shared}`, which is a different one in every block"
    )]
    SharedAddressInStatic {
        /// The static that holds the address.
        holder: String,
        /// The shared array.
        shared: String,
    },
    /// A kernel uses a static that can be written to and is not in shared memory.
    #[error(
        "kernel `{kernel}` uses the static `{name}`, which would be in global memory, one for the whole grid. Shared \
         arrays are statics of type `Shared<…>` declared inside a `#[kernel]` function; functions take them as parameters"
    )]
    WritableStatic {
        /// The kernel.
        kernel: String,
        /// The static.
        name: String,
    },
    /// A use of the address-space marker is not of a known shape.
    #[error("the address-space marker is used in a way that the link step does not know: {reason}: `{line}`")]
    UnknownMarkerUse {
        /// What is not known about it.
        reason: &'static str,
        /// The line of LLVM IR.
        line: String,
    },
}

/// A module after the pass.
#[derive(Debug)]
pub(crate) struct Rewritten {
    /// Textual LLVM IR.
    pub(crate) ir: String,
    /// The kernels that belong into a module for the architecture asked for, with their facts. Nothing else has to stay.
    pub(crate) kernels: Vec<(String, Entry)>,
}

impl Rewritten {
    /// The names of the kernels.
    pub(crate) fn names(&self) -> Vec<String> {
        self.kernels.iter().map(|(name, _)| name.clone()).collect()
    }
}

/// The start of the line that says for what target a module is.
const TARGET: &str = "target triple = ";

/// The module without the line that says for what target it is, and that line.
pub(crate) fn without_target(ir: &str) -> (String, String) {
    let (target, others): (Vec<&str>, Vec<&str>) = ir.lines().partition(|line| line.starts_with(TARGET));
    (others.join("\n"), target.join("\n"))
}

/// The module with such a line again.
pub(crate) fn with_target(ir: &str, target: &str) -> String {
    format!("{target}\n{ir}")
}

/// The names of all entry points in textual LLVM IR, whatever they are for.
pub(crate) fn kernels(ir: &str) -> Vec<String> {
    ir.lines().filter_map(|line| entry_name(line).map(str::to_owned)).collect()
}

/// The names of everything that has to stay for [`rewrite`] and [`left_out`]: the entry points, the constants with their facts, and the names
/// of kernels that are none.
pub(crate) fn kept(ir: &str) -> Vec<String> {
    let of_kernels = kernels(ir).into_iter().flat_map(|kernel| [format!("{}{kernel}", entry::PREFIX), kernel]);
    of_kernels.chain(left_out(ir).into_iter().map(|name| format!("{LEFT_OUT}{name}"))).collect()
}

/// The names of the kernels that the attribute macro has left out, because others were asked for.
pub(crate) fn left_out(ir: &str) -> Vec<String> {
    let variables = ir.lines().filter_map(Variable::parse);
    variables.filter_map(|variable| variable.name.strip_prefix(LEFT_OUT).map(str::to_owned)).collect()
}

/// Rewrites textual LLVM IR as the module's documentation says.
pub(crate) fn rewrite(ir: &str, arch: Arch) -> Result<Rewritten, PassError> {
    let ir = &*parameters::in_place(ir);
    let placed = Placed { shared: shared_variables(ir)?, constant: constants(ir)? };
    let spaces = arguments::spaces(ir, &placed);
    let mut facts = entry::facts(ir);
    let mut result = Rewritten { ir: String::with_capacity(ir.len() + ir.len() / 8), kernels: Vec::new() };
    let mut references = References::default();
    // What comes before the first instruction of a function's body, and the arguments of that function whose memory is known.
    let (mut beginning, mut known) = (String::new(), &[][..]);
    for line in ir.lines() {
        references.read(line);
        // The first line may be a label.
        let is_label = !line.starts_with(' ') && line != "}";
        if !beginning.is_empty() && !is_label {
            result.ir.push_str(&std::mem::take(&mut beginning));
        }
        let with_arguments = (!known.is_empty()).then(|| arguments::with_arguments(line, known));
        let line = with_arguments.as_deref().unwrap_or(line);
        let rewritten = if line.starts_with('@') {
            if entry::kernel_of(line).is_some() {
                continue;
            }
            variable(line, &placed)?
        } else if line.starts_with("define ") {
            let function = global_names(line).next().map_or("", |(_, name)| name);
            known = spaces.get(function).map_or(&[][..], Vec::as_slice);
            beginning = arguments::casts(known);
            let (line, kernel) = definition(line, arch, &mut facts)?;
            if kernel.is_some() && arch.compute_capability().launches_overlap() {
                beginning.push_str(WAIT_FOR_EARLIER_KERNELS);
            }
            result.kernels.extend(kernel);
            Cow::Owned(line)
        } else if line.starts_with("declare ") && marker::is_declaration(line) {
            continue;
        } else if line.starts_with("attributes #") {
            Cow::Owned(for_arch(line, arch))
        } else if line == "}" {
            known = &[];
            Cow::Borrowed(line)
        } else if line.contains(marker::PREFIX) {
            Cow::Owned(marker::replace_call(line, &placed)?)
        } else {
            with_casts(line, &placed)
        };
        result.ir.push_str(&rewritten);
        result.ir.push('\n');
    }
    references.check(&result.names(), &placed.shared)?;
    Ok(result)
}

/// The variables that are not in the generic address space, by their names.
struct Placed<'a> {
    shared: HashSet<&'a str>,
    constant: HashSet<&'a str>,
}

impl Placed<'_> {
    /// The address space of a variable, if it is not the generic one.
    fn space_of(&self, name: &str) -> Option<u32> {
        match name {
            panics::CHANNEL => Some(1),
            _ if self.shared.contains(name) => Some(3),
            _ if self.constant.contains(name) => Some(4),
            _ => None,
        }
    }
}

/// The names of all variables that have to be in constant memory.
fn constants(ir: &str) -> Result<HashSet<&str>, PassError> {
    let mut names = HashSet::new();
    for line in ir.lines().filter(|line| line.starts_with('@')) {
        let Some(variable) = Variable::parse(line) else { continue };
        if ir::section(line).is_none_or(|(_, section)| section != CONSTANT_SECTION) {
            continue;
        }
        let refuse =
            |reason: &str| Err(PassError::NotConstant { name: readable(variable.name), reason: reason.to_owned() });
        if variable.writable {
            return refuse("it can be written to");
        } else if !variable.is_generic() {
            return refuse("it has an address space already");
        }
        names.insert(variable.name);
    }
    Ok(names)
}

/// The names of all variables that have to be in shared memory.
fn shared_variables(ir: &str) -> Result<HashSet<&str>, PassError> {
    let mut names = HashSet::new();
    for line in ir.lines().filter(|line| line.starts_with('@')) {
        let Some(variable) = Variable::parse(line) else { continue };
        let refuse =
            |reason: &str| Err(PassError::NotShareable { name: readable(variable.name), reason: reason.to_owned() });
        let section = ir::section(line);
        if variable.name == DYNAMIC_SHARED {
            if !variable.prefix.contains(&"external") || section.is_some() {
                return refuse("the name is that of the dynamic shared memory, which nothing may define");
            }
        } else if let Some((clause, section)) = section.filter(|(_, name)| name.starts_with(SHARED_SECTION)) {
            // LLVM writes the section last.
            let Some(definition) = line.get(variable.keyword..clause.start) else {
                return refuse("its section stands before what it is");
            };
            let value = definition.rsplit(' ').next();
            if section != SHARED_SECTION {
                return refuse(&format!("its section is \"{section}\""));
            } else if !variable.writable {
                return refuse("it cannot be written to");
            } else if variable.prefix.iter().any(|word| word.starts_with("thread_local")) {
                return refuse("it is thread-local");
            } else if !variable.is_generic() {
                return refuse("it has an address space already");
            } else if !matches!(value, Some("undef" | "poison")) {
                return refuse("it has an initial value, and shared memory has none");
            }
        } else {
            continue;
        }
        names.insert(variable.name);
    }
    Ok(names)
}

/// The line that defines a variable.
fn variable<'a>(line: &'a str, placed: &Placed<'_>) -> Result<Cow<'a, str>, PassError> {
    let space = |variable: Variable<'a>| placed.space_of(variable.name).map(|space| (variable, space));
    let Some((variable, space)) = Variable::parse(line).and_then(space) else {
        let mut names = global_names(line).map(|(_, name)| name);
        let holder = names.next().unwrap_or_default();
        // `@llvm.used` and its like list what must be kept; that is no use of the address.
        if !holder.starts_with("llvm.")
            && let Some(name) = names.find(|name| placed.shared.contains(name))
        {
            return Err(PassError::SharedAddressInStatic { holder: readable(holder), shared: readable(name) });
        }
        return Ok(with_casts(line, placed));
    };
    if variable.name == panics::CHANNEL {
        return Ok(Cow::Owned(panics::declaration(line, &variable)));
    }
    if variable.name == DYNAMIC_SHARED {
        // The strictest alignment that anything in shared memory needs: that of a 128-byte swizzle's atom.
        return Ok(Cow::Owned(format!("@{DYNAMIC_SHARED} = external addrspace(3) global [0 x i8], align 1024")));
    }
    let (before, definition) = line.split_at(variable.keyword);
    let (clause, _) = ir::section(definition).unwrap_or((definition.len()..definition.len(), ""));
    Ok(Cow::Owned(format!("{before}addrspace({space}) {}{}", &definition[..clause.start], &definition[clause.end..])))
}

/// The line with a cast to a generic pointer for each use of a variable that is not in the generic address space.
fn with_casts<'a>(line: &'a str, placed: &Placed<'_>) -> Cow<'a, str> {
    ir::replace_names(line, |name| {
        let space = placed.space_of(name)?;
        Some(format!("addrspacecast (ptr addrspace({space}) {} to ptr)", ir::global_name(name)))
    })
}

/// The first line of a function, and its name and facts if it is a kernel for `arch`.
fn definition(
    line: &str,
    arch: Arch,
    facts: &mut HashMap<&str, Result<Entry, String>>,
) -> Result<(String, Option<(String, Entry)>), PassError> {
    let Some((range, name)) = global_names(line).next() else { return Ok((for_arch(line, arch), None)) };
    // A function's attributes come after its name; what it is stands before.
    let rewritten = line[..range.end].to_owned() + &for_arch(&line[range.end..], arch);
    if entry_name(line).is_none() {
        return Ok((rewritten, None));
    }
    let kernel = name.to_owned();
    let Some(entry) = facts.remove(name) else { return Err(PassError::ForeignEntry { kernel }) };
    let malformed = |reason| PassError::MalformedEntry { kernel: kernel.clone(), reason };
    let entry = entry.map_err(malformed)?;
    let rewritten = entry.definition(&rewritten, range.end).map_err(malformed)?;
    Ok((rewritten, entry.is_for(arch).then_some((kernel, entry))))
}

/// The line with the architecture that its function attributes name replaced.
fn for_arch(line: &str, arch: Arch) -> String {
    const ATTRIBUTE: &str = r#""target-cpu"=""#;
    match line.split_once(ATTRIBUTE).and_then(|(before, rest)| Some((before, rest.split_once('"')?.1))) {
        Some((before, after)) => format!("{before}{ATTRIBUTE}{arch}\"{after}"),
        None => line.to_owned(),
    }
}

/// A name as a person knows it.
fn readable(name: &str) -> String {
    format!("{:#}", demangle(name))
}

/// Which definitions mention which others, to see which variables a kernel can come to.
#[derive(Default)]
struct References<'a> {
    /// The function whose body is being read.
    function: Option<&'a str>,
    mentions: HashMap<&'a str, Vec<&'a str>>,
    writable: HashSet<&'a str>,
}

impl<'a> References<'a> {
    fn read(&mut self, line: &'a str) {
        let mut names = global_names(line).map(|(_, name)| name);
        if line.starts_with('@') {
            let Some(holder) = names.next() else { return };
            if Variable::parse(line).is_some_and(|variable| variable.writable && variable.is_generic()) {
                self.writable.insert(holder);
            }
            self.mentions.entry(holder).or_default().extend(names);
        } else if line.starts_with("define ") {
            self.function = names.next();
        } else if line == "}" {
            self.function = None;
        } else if let Some(function) = self.function {
            self.mentions.entry(function).or_default().extend(names);
        }
    }

    /// Fails if a kernel can come to a variable that can be written to and is not shared.
    fn check(&self, kernels: &[String], shared: &HashSet<&str>) -> Result<(), PassError> {
        for kernel in kernels {
            let mut seen = HashSet::from([kernel.as_str()]);
            let mut open = vec![kernel.as_str()];
            while let Some(name) = open.pop() {
                if self.writable.contains(name) && !shared.contains(name) && name != panics::CHANNEL {
                    return Err(PassError::WritableStatic { kernel: kernel.clone(), name: readable(name) });
                }
                for mentioned in self.mentions.get(name).into_iter().flatten() {
                    if seen.insert(mentioned) {
                        open.push(mentioned);
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;
