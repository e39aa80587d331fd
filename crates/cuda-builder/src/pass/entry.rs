//! What `#[kernel]` tells the link step about an entry point, in the name of the function's section:
//!
//! ```text
//! tilewright.kernel block=32,8,1 min_blocks=2 arch=sm_90a
//! ```
//!
//! `min_blocks` and `arch` may be absent. A section is the one thing of this kind that an attribute macro can attach to a
//! function and that reaches LLVM.

use crate::Arch;

/// What marks an entry point: the first word of its section's name.
const MARK: &str = "tilewright.kernel";

/// The launch bounds of a kernel, and where it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The shape of every block: x, y, z.
    pub(super) block: [u32; 3],
    /// How many blocks shall fit on a multiprocessor.
    pub(super) min_blocks: Option<u32>,
    /// The only architecture that the kernel is for.
    pub(super) arch: Option<Arch>,
}

impl Entry {
    /// Reads a section's name; `None` if it is not the mark of a kernel, and what is wrong if it is a garbled one.
    pub(super) fn parse(section: &str) -> Option<Result<Self, String>> {
        let mut words = section.split_ascii_whitespace();
        (words.next() == Some(MARK)).then(|| Self::from_words(words))
    }

    fn from_words<'a>(words: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let (mut block, mut min_blocks, mut arch) = (None, None, None);
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
                _ => return Err(bad("not `block=`, `min_blocks=` or `arch=`".into())),
            }
        }
        let block = block.ok_or_else(|| "`block=` is missing".to_owned())?;
        Ok(Self { block, min_blocks, arch })
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
        assert_eq!(entry, Entry { block: [32, 8, 1], min_blocks: None, arch: None });
        assert_eq!(entry.attributes(), r#""nvvm.reqntid"="32,8,1""#);
        let entry = Entry::parse("tilewright.kernel block=256,1,1 min_blocks=2 arch=sm_90a").unwrap().unwrap();
        assert_eq!(entry, Entry { block: [256, 1, 1], min_blocks: Some(2), arch: Some(Arch::Sm90a) });
        assert_eq!(entry.attributes(), r#""nvvm.reqntid"="256,1,1" "nvvm.minctasm"="2""#);
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
        ] {
            let error = Entry::parse(section).unwrap().unwrap_err();
            assert!(error.contains(word), "{section}: {error}");
        }
    }
}
