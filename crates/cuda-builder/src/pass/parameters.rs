//! Parameters by value that a kernel indexes by what is not known when it is compiled: it reads them where they are, as CUDA's
//! `__grid_constant__` parameters.
//!
//! rustc passes a struct as an array of whole numbers, and a function that indexes it has it in memory of its own:
//!
//! ```text
//! define ptx_kernel void @k([13 x i32] %0) {
//!   %2 = alloca [52 x i8], align 4
//!   %3 = extractvalue [13 x i32] %0, 0
//!   %4 = extractvalue [13 x i32] %0, 1
//!   %5 = getelementptr inbounds nuw i8, ptr %2, i64 4
//!   store i32 %4, ptr %5, align 4                                      (and so on, each number to its place)
//!   %9 = getelementptr inbounds float, ptr %5, i64 %8                  (which is not known)
//!   %10 = load float, ptr %9, align 4
//!      →
//! define ptx_kernel void @k(ptr byval([13 x i32]) align 4 "nvvm.grid_constant" %0) {
//!   %2 = getelementptr i8, ptr %0, i64 0
//!   %tilewright.place.0.1 = getelementptr i8, ptr %0, i64 0          (of parameter 0, for line 1 of the body)
//!   %3 = load i32, ptr %tilewright.place.0.1, align 4
//!   …
//!   %9 = getelementptr inbounds float, ptr %5, i64 %8
//!   %10 = load float, ptr %9, align 4                                  (`ld.param` in PTX)
//! ```
//!
//! That is so only where nothing is ever written to this memory but the parameter's own bytes, each to the place where it is in the parameter,
//! and where nothing is done with it but loads. Then it does not matter when they were written. Everything else stays as it is.

use std::borrow::Cow;
use std::collections::HashMap;

use super::ir;

/// Textual LLVM IR in which kernels read parameters where they are, if they would index a copy.
pub(super) fn in_place(ir: &str) -> Cow<'_, str> {
    let lines: Vec<&str> = ir.lines().collect();
    let mut changed = HashMap::new();
    for start in (0..lines.len()).filter(|&i| ir::entry_name(lines[i]).is_some()) {
        let Some(end) = lines[start..].iter().position(|line| *line == "}") else { continue };
        for (at, line) in of_kernel(lines[start], &lines[start + 1..start + end]) {
            changed.insert(start + at, line);
        }
    }
    if changed.is_empty() {
        return Cow::Borrowed(ir);
    }
    let mut result = String::with_capacity(ir.len());
    for (at, line) in lines.iter().enumerate() {
        match changed.get(&at) {
            Some(other) => result.push_str(other),
            None => {
                result.push_str(line);
                result.push('\n');
            }
        }
    }
    Cow::Owned(result)
}

/// A parameter that is passed as an array of whole numbers.
struct Parameter<'a> {
    /// Its place among the parameters, as the definition has it.
    index: usize,
    /// `[13 x i32]`.
    array: &'a str,
    /// The local name.
    name: &'a str,
    /// Of a number, in bytes: also the alignment.
    number: u64,
    bytes: u64,
}

impl<'a> Parameter<'a> {
    fn parse(index: usize, text: &'a str) -> Option<Self> {
        let (array, _) = text.split_once(']')?;
        let (count, number) = array.strip_prefix('[')?.split_once(" x i")?;
        let (count, bits) = (count.parse::<u64>().ok()?, number.parse::<u64>().ok()?);
        let name = text.rsplit(' ').next().filter(|name| name.starts_with('%'))?;
        let is_whole = matches!(bits, 8 | 16 | 32 | 64 | 128);
        let (array, number) = (&text[..array.len() + 1], bits / 8);
        let bytes = count.checked_mul(number)?;
        is_whole.then_some(Self { index, array, name, number, bytes })
    }

    /// Whether a line uses the array as a whole.
    fn is_in(&self, line: &str) -> bool {
        ir::local_names(line).any(|(_, name)| name == self.name)
    }

    /// The number that an instruction takes out of it, if it does that.
    fn extracted(&self, instruction: &str) -> Option<u64> {
        let operands = ir::split_list(instruction.strip_prefix("extractvalue ")?);
        let of_this = operands.first()?.strip_prefix(self.array)?.strip_prefix(' ')? == self.name;
        operands.get(1)?.parse().ok().filter(|_| of_this)
    }
}

/// The lines of a kernel's definition and body that change, by their numbers: 0 is the definition.
fn of_kernel(definition: &str, body: &[&str]) -> Vec<(usize, String)> {
    if !body.iter().any(|line| line.contains(" = alloca ")) {
        return Vec::new(); // as almost all kernels are, and some are long
    }
    let list = ir::global_names(definition).next().and_then(|(range, _)| ir::parenthesized(definition, range.end));
    let Some(list) = list else { return Vec::new() };
    let parameters = ir::split_list(list);
    let mut changed = Vec::new();
    let mut texts: Vec<Cow<'_, str>> = parameters.iter().map(|text| Cow::Borrowed(*text)).collect();
    for parameter in parameters.iter().enumerate().filter_map(|(index, text)| Parameter::parse(index, text)) {
        let Some(lines) = of_parameter(&parameter, body) else { continue };
        let Parameter { index, array, name, number, .. } = parameter;
        texts[index] = format!("ptr byval({array}) align {number} \"nvvm.grid_constant\" {name}").into();
        changed.extend(lines.into_iter().map(|(at, line)| (at + 1, line)));
    }
    if !changed.is_empty() {
        changed.push((0, definition.replacen(&format!("({list})"), &format!("({})", texts.join(", ")), 1) + "\n"));
    }
    changed
}

/// The lines that change where a parameter is read in place; none where it is not copied, or not read alone.
fn of_parameter(parameter: &Parameter<'_>, body: &[&str]) -> Option<Vec<(usize, String)>> {
    // Each number of the parameter by the names that it has, also as another type: its place in the parameter, in bytes.
    let mut numbers: HashMap<&str, u64> = HashMap::new();
    let mut changed = Vec::new();
    for (at, line) in body.iter().enumerate() {
        let assigned = assignment(line);
        if parameter.is_in(line) {
            if line.trim_start().starts_with("#dbg_") {
                changed.push((at, String::new()));
                continue;
            }
            let (name, instruction) = assigned?;
            let place = parameter.extracted(instruction)?.checked_mul(parameter.number)?;
            numbers.insert(name, place);
            let (bits, metadata) = (8 * parameter.number, metadata(instruction));
            let (base, align) = (parameter.name, parameter.number);
            changed.push((
                at,
                format!(
                    "  %tilewright.place.{}.{at} = getelementptr i8, ptr {base}, i64 {place}\n  \
                     {name} = load i{bits}, ptr %tilewright.place.{}.{at}, align {align}{metadata}\n",
                    parameter.index, parameter.index
                ),
            ));
        } else if let Some((name, instruction)) = assigned
            && let Some(operand) = with_these_bits(instruction)
            && let Some(&place) = numbers.get(operand)
        {
            numbers.insert(name, place);
        }
    }
    let copies = body.iter().enumerate().filter_map(|(at, line)| Copy::parse(at, line));
    let in_place: Vec<_> = copies.filter_map(|copy| copy.lines(parameter, &numbers, body)).collect();
    if in_place.is_empty() {
        return None;
    }
    changed.extend(in_place.into_iter().flatten());
    Some(changed)
}

/// Memory of a kernel's own that may be a copy of a parameter.
struct Copy<'a> {
    /// The line that makes it.
    at: usize,
    name: &'a str,
    bytes: u64,
    align: u64,
}

impl<'a> Copy<'a> {
    fn parse(at: usize, line: &'a str) -> Option<Self> {
        let (name, instruction) = assignment(line)?;
        let operands = ir::split_list(instruction.strip_prefix("alloca ")?);
        let bytes = operands.first()?.strip_prefix('[')?.strip_suffix(" x i8]")?.parse().ok()?;
        let align = operands.get(1)?.strip_prefix("align ")?.parse().ok()?;
        Some(Self { at, name, bytes, align })
    }

    /// The lines that change where the parameter stands in for the copy, if it may.
    fn lines(
        &self,
        parameter: &Parameter<'_>,
        numbers: &HashMap<&str, u64>,
        body: &[&str],
    ) -> Option<Vec<(usize, String)>> {
        // Pointers into the copy: how far, in bytes, if that is known.
        let mut pointers = HashMap::from([(self.name, Some(0))]);
        loop {
            let known = pointers.len();
            for line in body {
                let Some((name, instruction)) = assignment(line) else { continue };
                if let Some(pointer) = element_pointer(instruction, &pointers) {
                    pointers.insert(name, pointer);
                }
            }
            if pointers.len() == known {
                break;
            }
        }
        // Where in the parameter the copy begins.
        let mut begin = None;
        let mut changed = Vec::new();
        for (at, line) in body.iter().enumerate() {
            if at == self.at || !ir::local_names(line).any(|(_, name)| pointers.contains_key(name)) {
                continue;
            }
            let instruction = assignment(line).map(|(_, instruction)| instruction);
            match instruction {
                Some(instruction) if element_pointer(instruction, &pointers).is_some() => {}
                Some(instruction) => {
                    let operands = ir::split_list(instruction.strip_prefix("load ")?);
                    let pointer = operands.get(1)?.strip_prefix("ptr ")?;
                    let is_plain = !["volatile ", "atomic "].iter().any(|word| operands[0].starts_with(word));
                    if !is_plain || !pointers.contains_key(pointer) {
                        return None;
                    }
                }
                None if line.contains("@llvm.lifetime.") || line.trim_start().starts_with("#dbg_") => {
                    changed.push((at, String::new()));
                }
                None => {
                    let operands = ir::split_list(line.trim_start().strip_prefix("store ")?);
                    let (_, value) = operands.first()?.split_once(' ')?;
                    let to = (*pointers.get(operands.get(1)?.strip_prefix("ptr ")?)?)?;
                    let from = *numbers.get(value)?;
                    let begins = from.checked_sub(to)?;
                    if begin.is_some_and(|begin| begin != begins) {
                        return None;
                    }
                    begin = Some(begins);
                    changed.push((at, String::new()));
                }
            }
        }
        let begin = begin?;
        let fits = begin.saturating_add(self.bytes) <= parameter.bytes
            && self.align <= parameter.number
            && begin.is_multiple_of(self.align.max(1));
        changed.push((self.at, format!("  {} = getelementptr i8, ptr {}, i64 {begin}\n", self.name, parameter.name)));
        fits.then_some(changed)
    }
}

/// What has the same bits as the result of an instruction, if that changes nothing but the type.
fn with_these_bits(instruction: &str) -> Option<&str> {
    let (operand, _) = match instruction.strip_prefix("bitcast ") {
        Some(cast) => cast.split_once(" to ")?,
        // A pointer has 64 bits.
        None => instruction
            .strip_prefix("inttoptr ")?
            .split_once(" to ")
            .filter(|(operand, _)| operand.starts_with("i64 "))?,
    };
    Some(operand.rsplit_once(' ')?.1)
}

/// How far into the copy a pointer is, if an instruction makes one of another such pointer.
fn element_pointer(instruction: &str, pointers: &HashMap<&str, Option<u64>>) -> Option<Option<u64>> {
    let operands = ir::split_list(instruction.strip_prefix("getelementptr ")?);
    let base = *pointers.get(operands.get(1)?.strip_prefix("ptr ")?)?;
    let indices: Vec<_> = operands[2..].iter().filter(|operand| !operand.starts_with('!')).collect();
    let constant = match &indices[..] {
        [bytes] if operands[0].rsplit(' ').next() == Some("i8") => {
            bytes.strip_prefix("i64 ").and_then(|n| n.parse::<u64>().ok())
        }
        _ => None,
    };
    Some(base.zip(constant).and_then(|(base, bytes)| base.checked_add(bytes)))
}

/// The name that a line gives to the result of an instruction, and the instruction.
fn assignment(line: &str) -> Option<(&str, &str)> {
    let (name, instruction) = line.trim_start().split_once(" = ")?;
    name.starts_with('%').then(|| (name, instruction.strip_prefix("tail ").unwrap_or(instruction)))
}

/// What stands behind an instruction's operands about the line of Rust that it comes from, with the comma before it.
fn metadata(instruction: &str) -> String {
    let about = ir::split_list(instruction).into_iter().find(|operand| operand.starts_with("!dbg "));
    about.map_or_else(String::new, |about| format!(", {about}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel that has numbers 1 and 2 of its parameter in memory, and loads one of them; `more` stands before the load.
    fn kernel(more: &str) -> String {
        format!(
            "define ptx_kernel void @k([4 x i32] %0, [2 x i64] %1) #0 {{\n  \
             %3 = alloca [8 x i8], align 4\n  \
             %a = extractvalue [4 x i32] %0, 1, !dbg !5\n  \
             %.f = extractvalue [4 x i32] %0, 2\n  \
             %\"b c\" = bitcast i32 %.f to float\n  \
             #dbg_value([4 x i32] %0, !1, !DIExpression(), !2)\n  \
             call void @llvm.lifetime.start.p0(ptr nonnull %3)\n  \
             store i32 %a, ptr %3, align 4\n  \
             %4 = getelementptr inbounds nuw i8, ptr %3, i64 4\n  \
             store float %\"b c\", ptr %4, align 4, !dbg !6\n  \
             %5 = extractvalue [2 x i64] %1, 0\n\
             {more}  \
             %6 = getelementptr inbounds nuw float, ptr %3, i64 %5\n  \
             %7 = load float, ptr %6, align 4\n  \
             ret void\n}}\n"
        )
    }

    #[test]
    fn what_is_copied_and_read_alone_is_read_in_place() {
        let expected = "define ptx_kernel void @k(ptr byval([4 x i32]) align 4 \"nvvm.grid_constant\" %0, [2 x i64] %1) #0 {\n  \
                        %3 = getelementptr i8, ptr %0, i64 4\n  \
                        %tilewright.place.0.1 = getelementptr i8, ptr %0, i64 4\n  \
                        %a = load i32, ptr %tilewright.place.0.1, align 4, !dbg !5\n  \
                        %tilewright.place.0.2 = getelementptr i8, ptr %0, i64 8\n  \
                        %.f = load i32, ptr %tilewright.place.0.2, align 4\n  \
                        %\"b c\" = bitcast i32 %.f to float\n  \
                        %4 = getelementptr inbounds nuw i8, ptr %3, i64 4\n  \
                        %5 = extractvalue [2 x i64] %1, 0\n  \
                        %6 = getelementptr inbounds nuw float, ptr %3, i64 %5\n  \
                        %7 = load float, ptr %6, align 4\n  \
                        ret void\n}\n";
        assert_eq!(in_place(&kernel("")), expected);
        // Another function stays, and so does a kernel that has no such memory.
        for other in [kernel("").replace("ptx_kernel ", ""), kernel("").replace("alloca [8 x i8]", "alloca <8 x i8>")] {
            assert_eq!(in_place(&other), other);
        }
    }

    #[test]
    fn what_may_be_written_or_seen_by_others_stays() {
        for more in [
            // Another number, another place, a number that is worked out.
            "  store i32 7, ptr %4, align 4\n",
            "  store i32 %a, ptr %4, align 4\n",
            "  %x = inttoptr i32 %a to ptr\n  store ptr %x, ptr %3, align 4\n",
            "  %x = add i32 %a, 1\n  store i32 %x, ptr %3, align 4\n",
            "  %x = getelementptr inbounds nuw i32, ptr %3, i64 %5\n  store i32 %a, ptr %x, align 4\n",
            "  store volatile i32 %a, ptr %3, align 4\n",
            // Others have the pointer, or what it points to.
            "  call void @f(ptr %4)\n",
            "  store ptr %4, ptr @G, align 8\n",
            "  %x = select i1 %c, ptr %3, ptr %4\n",
            "  %x = load volatile i32, ptr %3, align 4\n",
            "  call void @llvm.memcpy.p0.p0.i64(ptr %3, ptr %p, i64 8, i1 false)\n",
            // The parameter as a whole.
            "  %x = freeze [4 x i32] %0\n",
        ] {
            let ir = kernel(more);
            assert_eq!(in_place(&ir), ir, "{more}");
        }
        // More than there is of the parameter, or more aligned than it is.
        for (found, other) in
            [("alloca [8 x i8], align 4", "alloca [16 x i8], align 4"), ("[8 x i8], align 4", "[8 x i8], align 8")]
        {
            let ir = kernel("").replace(found, other);
            assert_eq!(in_place(&ir), ir, "{other}");
        }
    }
}
