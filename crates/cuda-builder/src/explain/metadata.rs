//! Fields of the metadata of LLVM IR.

/// The number of the node that a field refers to: `scope: !20`.
pub(crate) fn reference(node: &str, field: &str) -> Option<u32> {
    let rest = node.split_once(field)?.1.strip_prefix('!')?;
    rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())].parse().ok()
}

/// The number in a field, as it is written, or `0`.
pub(crate) fn value<'a>(node: &'a str, field: &str) -> &'a str {
    let rest = node.split_once(field).map_or("0", |(_, rest)| rest);
    &rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())]
}

/// The text in a field.
pub(crate) fn text<'a>(node: &'a str, field: &str) -> Option<&'a str> {
    node.split_once(field)?.1.strip_prefix('"')?.split('"').next()
}
