//! What `#[kernel]` tells the link step about an entry point, in the name of the function's section:
//!
//! ```text
//! tilewright.kernel block=32,8,1 min_blocks=2 arch=sm_90a tensor_maps=0,1
//! ```
//!
//! All but `block` may be absent. A section is the one thing of this kind that an attribute macro can attach to a
//! function and that reaches LLVM.

use super::ir;
use crate::Arch;

/// What marks an entry point: the first word of its section's name.
const MARK: &str = "tilewright.kernel";

/// The launch bounds of a kernel, and where it belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The shape of every block: x, y, z.
    pub(super) block: [u32; 3],
    /// How many blocks shall fit on a multiprocessor.
    pub(super) min_blocks: Option<u32>,
    /// The only architecture that the kernel is for.
    pub(super) arch: Option<Arch>,
    /// Which parameters are tensor maps, 128 bytes that the kernel uses where they are instead of copying them.
    pub(super) tensor_maps: Vec<usize>,
}

impl Entry {
    /// Reads a section's name; `None` if it is not the mark of a kernel, and what is wrong if it is a garbled one.
    pub(super) fn parse(section: &str) -> Option<Result<Self, String>> {
        let mut words = section.split_ascii_whitespace();
        (words.next() == Some(MARK)).then(|| Self::from_words(words))
    }

    fn from_words<'a>(words: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let (mut block, mut min_blocks, mut arch, mut tensor_maps) = (None, None, None, Vec::new());
        for word in words {
            let bad = |why: String| format!("`{word}`: {why}");
            match word.split_once('=') {
                Some(("block", extents)) => {
                    block = Some(parse_block(extents).ok_or_else(|| bad("not three extents".into()))?)
                }
                Some(("min_blocks", count)) => {
                    min_blocks = Some(count.parse().map_err(|_| bad("not a number".into()))?);
                }
                Some(("arch", name)) => arch = Some(name.parse::<Arch>().map_err(|error| bad(error.to_string()))?),
                Some(("tensor_maps", indices)) => {
                    let indices: Option<_> = indices.split(',').map(|index| index.parse().ok()).collect();
                    tensor_maps = indices.ok_or_else(|| bad("not positions of parameters".into()))?;
                }
                _ => return Err(bad("not `block=`, `min_blocks=`, `arch=` or `tensor_maps=`".into())),
            }
        }
        let block = block.ok_or_else(|| "`block=` is missing".to_owned())?;
        Ok(Self { block, min_blocks, arch, tensor_maps })
    }

    /// The function attributes from which LLVM makes `.reqntid` and `.minnctapersm`.
    pub(super) fn attributes(&self) -> String {
        let [x, y, z] = self.block;
        let mut attributes = format!(r#""nvvm.reqntid"="{x},{y},{z}""#);
        if let Some(blocks) = self.min_blocks {
            attributes += &format!(r#" "nvvm.minctasm"="{blocks}""#);
        }
        attributes
    }

    /// The first line of the kernel's definition up to its section, with the parameters that are tensor maps passed by
    /// value and read in place. `name_end` is where the kernel's name ends.
    ///
    /// Rust has no type for this: it would pass 128 bytes aligned to 64 by copying them to local memory, so the parameter
    /// is a pointer in Rust, and becomes the pointer to its own bytes here.
    pub(super) fn with_tensor_maps(&self, head: &str, name_end: usize) -> Result<String, String> {
        if self.tensor_maps.is_empty() {
            return Ok(head.to_owned());
        }
        let list = ir::parenthesized(head, name_end).ok_or("its parameters cannot be read")?;
        let mut parameters = ir::split_list(list);
        for &index in &self.tensor_maps {
            let parameter = parameters.get_mut(index).ok_or_else(|| format!("there is no parameter {index}"))?;
            let name = parameter.rsplit(' ').next().filter(|name| name.starts_with('%'));
            match name {
                Some(name) if parameter.starts_with("ptr ") && !parameter.contains("byval") => {
                    *parameter = format!("ptr byval([128 x i8]) align 64 \"nvvm.grid_constant\" {name}");
                }
                _ => return Err(format!("parameter {index}, `{parameter}`, is no pointer")),
            }
        }
        let (before, after) = (&head[..name_end], &head[name_end + list.len() + 2..]);
        Ok(format!("{before}({}){after}", parameters.join(", ")))
    }
}

fn parse_block(extents: &str) -> Option<[u32; 3]> {
    let extents: Vec<u32> = extents.split(',').map(|extent| extent.parse().ok()).collect::<Option<_>>()?;
    extents.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_macro_writes() {
        let entry = Entry::parse("tilewright.kernel block=32,8,1").unwrap().unwrap();
        assert_eq!(entry, Entry { block: [32, 8, 1], min_blocks: None, arch: None, tensor_maps: vec![] });
        assert_eq!(entry.attributes(), r#""nvvm.reqntid"="32,8,1""#);
        let entry = Entry::parse("tilewright.kernel block=256,1,1 min_blocks=2 arch=sm_90a").unwrap().unwrap();
        assert_eq!(
            entry,
            Entry { block: [256, 1, 1], min_blocks: Some(2), arch: Some(Arch::Sm90a), tensor_maps: vec![] }
        );
        assert_eq!(entry.attributes(), r#""nvvm.reqntid"="256,1,1" "nvvm.minctasm"="2""#);
    }

    #[test]
    fn tensor_maps_are_passed_by_value() {
        let entry = Entry::parse("tilewright.kernel block=128,1,1 tensor_maps=0,2").unwrap().unwrap();
        let head = "define ptx_kernel void @k(ptr noundef readonly captures(none) %map_a, [2 x i64] %x, ptr %0) #3";
        let expected = "define ptx_kernel void @k(ptr byval([128 x i8]) align 64 \"nvvm.grid_constant\" %map_a, [2 x i64] %x, \
                        ptr byval([128 x i8]) align 64 \"nvvm.grid_constant\" %0) #3";
        let name_end = head.find('(').unwrap();
        assert_eq!(entry.with_tensor_maps(head, name_end).unwrap(), expected);
        let head = "define ptx_kernel void @k(ptr %a, i64 %x, i64 %y) #3";
        assert!(entry.with_tensor_maps(head, head.find('(').unwrap()).unwrap_err().contains("`i64 %y`"));
        let head = "define ptx_kernel void @k(ptr %a) #3";
        assert!(entry.with_tensor_maps(head, head.find('(').unwrap()).unwrap_err().contains("no parameter 2"));
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        assert_eq!(Entry::parse(".text.hot"), None);
        for (section, word) in [
            ("tilewright.kernel", "block="),
            ("tilewright.kernel block=32,8", "block=32,8"),
            ("tilewright.kernel block=1,1,1 max_blocks=2", "max_blocks"),
            ("tilewright.kernel block=1,1,1 min_blocks=x", "min_blocks=x"),
            ("tilewright.kernel block=1,1,1 arch=sm_1", "sm_1"),
            ("tilewright.kernel block=1,1,1 tensor_maps=0,x", "tensor_maps=0,x"),
        ] {
            let error = Entry::parse(section).unwrap().unwrap_err();
            assert!(error.contains(word), "{section}: {error}");
        }
    }
}
