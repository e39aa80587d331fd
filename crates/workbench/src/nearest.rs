//! What to say of a name that nobody knows: the three that are most like it.

/// What a name should be of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Kernel,
    KernelCrate,
    Program,
    Operation,
    Puzzle,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::KernelCrate => "crate of kernels",
            Self::Program => "package with a program",
            Self::Operation => "operation",
            Self::Puzzle => "puzzle",
        }
    }
}

/// ``there is no kernel `axpi` (did you mean `axpy` or `scale`?)``
pub(crate) fn unknown(kind: Kind, name: &str, known: &[String]) -> String {
    let of = |known: &String| strsim::jaro_winkler(&name.to_lowercase(), &known.to_lowercase());
    let mut ranked: Vec<_> = known.iter().map(|known| (of(known), known)).collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    ranked.dedup_by_key(|(_, known)| *known);
    let nearest: Vec<_> = ranked.into_iter().take(3).map(|(_, known)| format!("`{known}`")).collect();
    let advice = match nearest.split_last() {
        None => "there are none".to_owned(),
        Some((only, [])) => format!("did you mean {only}?"),
        Some((last, others)) => format!("did you mean {} or {last}?", others.join(", ")),
    };
    format!("there is no {} `{name}` ({advice})", kind.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_nearest_are_named() {
        let known = ["softmax_fp32", "softmax_rows", "axpy", "row_sums"].map(str::to_owned);
        assert_eq!(
            unknown(Kind::Kernel, "softmax_fp23", &known),
            "there is no kernel `softmax_fp23` (did you mean `softmax_fp32`, `softmax_rows` or `axpy`?)"
        );
        assert_eq!(unknown(Kind::Kernel, "AXPY", &known[2..3]), "there is no kernel `AXPY` (did you mean `axpy`?)");
        assert_eq!(unknown(Kind::Operation, "x", &[]), "there is no operation `x` (there are none)");
    }
}
