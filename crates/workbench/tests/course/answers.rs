//! Answers to the puzzles that tempt, and what has to come of each: the tests of what judges the puzzles.
//!
//! An answer is the repository's solution with something in it replaced, which has to stand there just once.

/// An answer.
pub(crate) struct Answer {
    /// The puzzle.
    pub(crate) puzzle: &'static str,
    /// What somebody thinks who gives it.
    pub(crate) idea: &'static str,
    /// What is replaced in the file with the solution, and by what.
    pub(crate) edits: &'static [(&'static str, &'static str)],
    /// What has to come of it: a kind of failure, or [`RIGHT`].
    pub(crate) outcome: &'static str,
}

/// The outcome of what is another way to solve the puzzle.
pub(crate) const RIGHT: &str = "right";

/// What does not compile: a part of the compiler's message, and the answer.
pub(crate) const UNCOMPILABLE: (&str, Answer) = (
    "the trait bound `f64: From<T>` is not satisfied",
    Answer {
        puzzle: "low-bits",
        idea: "a sum in f64",
        edits: &[("self.sum = next;", "self.sum = (f64::from(self.sum) + f64::from(x)) as f32;")],
        outcome: "",
    },
);

/// All answers. Those of one puzzle stand together.
pub(crate) const ANSWERS: &[Answer] = &[
    Answer {
        puzzle: "axpy",
        idea: "two roundings in place of one",
        edits: &[(
            "math::fma(a, x.get_unchecked(i), y.get_unchecked(i))",
            "a * x.get_unchecked(i) + y.get_unchecked(i)",
        )],
        outcome: RIGHT,
    },
    Answer {
        puzzle: "axpy",
        idea: "the index that is the length",
        edits: &[("if i < y.len() {", "if i <= y.len() {")],
        outcome: "OutOfBounds",
    },
    Answer {
        puzzle: "grid-stride",
        idea: "each thread has elements side by side",
        edits: &[
            (
                "let mut i = thread::index_1d();\n    while i < y.len() {",
                "let each = y.len().div_ceil(thread::count());\n    let mut i = each * thread::index_1d();\n    let end = y.len().min(i + each);\n    while i < end {",
            ),
            ("i += thread::count();", "i += 1;"),
        ],
        outcome: "Score",
    },
    Answer {
        puzzle: "grid-stride",
        idea: "the element is read where it is needed, twice",
        edits: &[(
            "            let x = x.get_unchecked(i);\n            y.set_unchecked(i, x * x);",
            "            y.set_unchecked(i, x.get_unchecked(i) * x.get_unchecked(i));",
        )],
        outcome: RIGHT,
    },
    Answer {
        puzzle: "gather",
        idea: "scattered, by atomic additions",
        edits: &[
            ("let j = thread::index_1d();\n    if j < y.len() {", "let i = thread::index_1d();\n    if i < x.len() {"),
            (
                "            let pair = x.get_unchecked(2 * j) + x.get_unchecked(2 * j + 1);\n            y.set_unchecked(j, y.get_unchecked(j) + pair);",
                "            use cuda_std::atomic::{Relaxed, Scope};\n            y.atomic_unchecked(i / 2).fetch_add(x.get_unchecked(i), Relaxed, Scope::Device);",
            ),
        ],
        outcome: "Judge",
    },
    Answer {
        puzzle: "gather",
        idea: "both neighbours by one load",
        edits: &[(
            "let pair = x.get_unchecked(2 * j) + x.get_unchecked(2 * j + 1);",
            "let [left, right] = x.get_vector_unchecked::<2>(2 * j);\n            let pair = left + right;",
        )],
        outcome: RIGHT,
    },
    Answer {
        puzzle: "warp-sum",
        idea: "a mask of those lanes alone whose sums are still needed",
        edits: &[
            (
                "unsafe { warp::warp_shuffle_down(warp::ALL_LANES, ",
                "unsafe { warp::warp_shuffle_down((1 << distance) - 1, ",
            ),
            ("        let (other, _) = ", "        let (other, _) = if lane >= distance { (0.0, false) } else { "),
            ("sum, distance, 32) };", "sum, distance, 32) } };"),
        ],
        outcome: "InactiveLane",
    },
    Answer {
        puzzle: "warp-sum",
        idea: "only lanes that have a source add",
        edits: &[("        sum += other;\n", "        if lane < distance {\n            sum += other;\n        }\n")],
        outcome: RIGHT,
    },
    Answer {
        puzzle: "block-sum",
        idea: "no barrier between the warps' sums and the total",
        edits: &[("        thread::sync_threads();\n", "")],
        outcome: "Race",
    },
    Answer {
        puzzle: "block-sum",
        idea: "every lane writes the sum of its warp",
        edits: &[("if warp::lane_id() == 0 {", "{")],
        outcome: "Race",
    },
    Answer {
        puzzle: "block-sum",
        idea: "the sums of four warps",
        edits: &[("for w in 0..8", "for w in 0..4")],
        outcome: "Wrong",
    },
    Answer {
        puzzle: "block-sum",
        idea: "the first warp adds up by shuffles",
        edits: &[
            (
                "if t == 0 {\n            let mut total = 0.0;",
                "if t < 32 {\n            let own = if t < 8 { PARTS.read(t) } else { 0.0 };\n            let total = sum_of_warp(own);",
            ),
            (
                "            for w in 0..8 {\n                total += PARTS.read(w);\n            }\n            sums.set_unchecked(row, total);",
                "            if t == 0 {\n                sums.set_unchecked(row, total);\n            }",
            ),
        ],
        outcome: RIGHT,
    },
    Answer {
        puzzle: "last-block",
        idea: "release alone",
        edits: &[("atomic::AcqRel", "atomic::Release")],
        outcome: "GlobalRace",
    },
    Answer {
        puzzle: "last-block",
        idea: "acquire alone",
        edits: &[("atomic::AcqRel", "atomic::Acquire")],
        outcome: "GlobalRace",
    },
    Answer {
        puzzle: "last-block",
        idea: "the order is right, and holds within the block only",
        edits: &[("atomic::AcqRel, Scope::Device", "atomic::AcqRel, Scope::Block")],
        outcome: "GlobalRace",
    },
    Answer {
        puzzle: "flags",
        idea: "release alone",
        edits: &[("atomic::Acquire, ", "atomic::Relaxed, ")],
        outcome: "GlobalRace",
    },
    Answer {
        puzzle: "flags",
        idea: "acquire alone",
        edits: &[("atomic::Release, ", "atomic::Relaxed, ")],
        outcome: "GlobalRace",
    },
    Answer {
        puzzle: "flags",
        idea: "the flag before the total",
        edits: &[(
            "        totals.set_unchecked(block, sum);\n        flags.get_unchecked(block).store(1, atomic::Release, Scope::Device);",
            "        flags.get_unchecked(block).store(1, atomic::Release, Scope::Device);\n        totals.set_unchecked(block, sum);",
        )],
        outcome: "GlobalRace",
    },
    Answer {
        puzzle: "scan",
        idea: "no barrier behind the writes",
        edits: &[(
            "SUMS.write(t, SUMS.read(t) + before);\n            thread::sync_threads();",
            "SUMS.write(t, SUMS.read(t) + before);",
        )],
        outcome: "Race",
    },
    Answer {
        puzzle: "scan",
        idea: "no barrier between reads and writes",
        edits: &[("else { 0.0 };\n            thread::sync_threads();", "else { 0.0 };")],
        outcome: "Race",
    },
    Answer {
        puzzle: "scan",
        idea: "barriers for those that add only",
        edits: &[(
            "let before = if t >= distance { SUMS.read(t - distance) } else { 0.0 };\n            thread::sync_threads();",
            "if t < distance {\n                break;\n            }\n            let before = SUMS.read(t - distance);\n            thread::sync_threads();",
        )],
        outcome: "BarrierDivergence",
    },
    Answer {
        puzzle: "votes",
        idea: "only lanes that have an element vote",
        edits: &[("while round < cols {", "while round + lane < cols {")],
        outcome: "GlobalRace",
    },
    Answer {
        puzzle: "votes",
        idea: "the own number counts among those before it",
        edits: &[("votes & ((1 << lane) - 1)", "votes & (u32::MAX >> (31 - lane))")],
        outcome: "OutOfBounds",
    },
    Answer {
        puzzle: "votes",
        idea: "an addition to the total in each round",
        edits: &[
            (
                "            round += 32;\n",
                "            if lane == 0 {\n                let kept = votes.count_ones();\n                total.get_unchecked(0).fetch_add(kept, Relaxed, Scope::Device);\n            }\n            round += 32;\n",
            ),
            ("fetch_add(kept as u32, ", "fetch_add(0, "),
        ],
        outcome: "Score",
    },
    Answer {
        puzzle: "votes",
        idea: "each lane adds what it has kept",
        edits: &[
            (
                "            if value > 0.0 {\n",
                "            if value > 0.0 {\n                total.get_unchecked(0).fetch_add(1, Relaxed, Scope::Device);\n",
            ),
            ("fetch_add(kept as u32, ", "fetch_add(0, "),
        ],
        outcome: "Score",
    },
    Answer {
        puzzle: "votes",
        idea: "places of one round are taken again in the next",
        edits: &[("kept += votes", "kept = votes")],
        outcome: "GlobalRace",
    },
    Answer {
        puzzle: "votes",
        idea: "who has no element does not vote",
        edits: &[(
            "let votes = warp::warp_vote_ballot(warp::ALL_LANES, value > 0.0);",
            "let votes =\n                if col < cols { warp::warp_vote_ballot(warp::ALL_LANES, value > 0.0) } else { 0 };",
        )],
        outcome: "GlobalRace",
    },
    Answer {
        puzzle: "vectors",
        idea: "an even number of columns",
        edits: &[("cols.is_multiple_of(4)", "cols.is_multiple_of(2)")],
        outcome: "Misaligned",
    },
    Answer { puzzle: "vectors", idea: "no vectors", edits: &[("cols.is_multiple_of(4)", "false")], outcome: "Score" },
    Answer {
        puzzle: "vectors",
        idea: "enough columns",
        edits: &[("cols.is_multiple_of(4)", "cols >= 4")],
        outcome: "Misaligned",
    },
    Answer {
        puzzle: "vectors",
        idea: "row by row",
        edits: &[("cols.is_multiple_of(4)", "(row * cols).is_multiple_of(4)")],
        outcome: RIGHT,
    },
    Answer {
        puzzle: "double-buffer",
        idea: "wait for all copies",
        edits: &[("wait_group::<1>();", "wait_group::<0>();")],
        outcome: "Judge",
    },
    Answer {
        puzzle: "double-buffer",
        idea: "two groups may be under way",
        edits: &[("wait_group::<1>();", "wait_group::<2>();")],
        outcome: "UnwrittenShared",
    },
    Answer {
        puzzle: "double-buffer",
        idea: "no second barrier",
        edits: &[(
            "- (64 * i + t));\n            }\n            thread::sync_threads();",
            "- (64 * i + t));\n            }",
        )],
        outcome: "Race",
    },
    Answer {
        puzzle: "double-buffer",
        idea: "one stage for all chunks",
        edits: &[("&stages, chunk % 2 * CHUNK", "&stages, 0"), ("stages.read(chunk % 2 * CHUNK + ", "stages.read(")],
        outcome: "WriteUnderWay",
    },
    Answer {
        puzzle: "double-buffer",
        idea: "no group behind the last chunk",
        edits: &[(
            "                copy_async::<4, _>(&stages, chunk % 2 * CHUNK + 4 * t, &x, from, 4);\n            }\n            commit_group();",
            "                copy_async::<4, _>(&stages, chunk % 2 * CHUNK + 4 * t, &x, from, 4);\n                commit_group();\n            }",
        )],
        outcome: "UnwrittenShared",
    },
    Answer {
        puzzle: "double-buffer",
        idea: "wait for all, and ask for the next chunk behind the barrier: one barrier in a round is enough",
        edits: &[
            (
                "            copy(chunk + 1);\n            wait_group::<1>();\n            thread::sync_threads();",
                "            wait_group::<0>();\n            thread::sync_threads();\n            copy(chunk + 1);",
            ),
            ("- (64 * i + t));\n            }\n            thread::sync_threads();", "- (64 * i + t));\n            }"),
        ],
        outcome: RIGHT,
    },
    Answer {
        puzzle: "double-buffer",
        idea: "loads and stores in place of copies",
        edits: &[(
            "                copy_async::<4, _>(&stages, chunk % 2 * CHUNK + 4 * t, &x, from, 4);\n",
            "                let _ = copy_async::<4, f32>;\n                for i in 0..4 {\n                    stages.write(chunk % 2 * CHUNK + 4 * t + i, x.get_unchecked(from + i));\n                }\n",
        )],
        outcome: "Score",
    },
    Answer {
        puzzle: "phases",
        idea: "the same parities in each round",
        edits: &[("32 * round as usize, round & 1)", "32 * round as usize, 0)")],
        outcome: "Deadlock",
    },
    Answer {
        puzzle: "phases",
        idea: "the producer waits for the phase of its own round",
        edits: &[("empty.wait(parity ^ 1)", "empty.wait(parity)")],
        outcome: "Deadlock",
    },
    Answer {
        puzzle: "phases",
        idea: "the producer never waits",
        edits: &[("                empty.wait(parity ^ 1);\n", "")],
        outcome: "Deadlock",
    },
    Answer {
        puzzle: "phases",
        idea: "an arrival for a warp, and all lanes arrive",
        edits: &[("full.init(32)", "full.init(1)")],
        outcome: "Deadlock",
    },
    Answer {
        puzzle: "phases",
        idea: "the block's barrier in place of phases",
        edits: &[
            (
                "                empty.wait(parity ^ 1);\n                place.write(lane, x.get_unchecked(at + lane));\n                full.arrive();\n            } else {\n                full.wait(parity);\n",
                "                let _ = (parity, full, empty);\n                place.write(lane, x.get_unchecked(at + lane));\n            }\n            thread::sync_threads();\n            if t >= 32 {\n",
            ),
            (
                "                empty.arrive();\n            }\n",
                "            }\n            thread::sync_threads();\n",
            ),
        ],
        outcome: "Judge",
    },
    Answer {
        puzzle: "phases",
        idea: "a barrier with a number in place of phases",
        edits: &[
            (
                "                empty.wait(parity ^ 1);\n                place.write(lane, x.get_unchecked(at + lane));\n                full.arrive();\n            } else {\n                full.wait(parity);\n",
                "                let _ = (parity, full, empty);\n                place.write(lane, x.get_unchecked(at + lane));\n            }\n            cuda_std::hopper::sync_part::<64>(1);\n            if t >= 32 {\n",
            ),
            (
                "                empty.arrive();\n            }\n",
                "            }\n            cuda_std::hopper::sync_part::<64>(1);\n",
            ),
        ],
        outcome: "Judge",
    },
    Answer {
        puzzle: "phases",
        idea: "one lane arrives for its warp",
        edits: &[
            ("full.init(32);\n            empty.init(32);", "full.init(1);\n            empty.init(1);"),
            (
                "                full.arrive();",
                "                warp::sync_warp(warp::ALL_LANES);\n                if lane == 0 {\n                    full.arrive();\n                }",
            ),
            (
                "                empty.arrive();",
                "                warp::sync_warp(warp::ALL_LANES);\n                if lane == 0 {\n                    empty.arrive();\n                }",
            ),
        ],
        outcome: RIGHT,
    },
    Answer {
        puzzle: "tma",
        idea: "elements in place of bytes",
        edits: &[("arrive_expecting(TILE_BYTES as u32)", "arrive_expecting(32 * 32)")],
        outcome: "Deadlock",
    },
    Answer {
        puzzle: "tma",
        idea: "the row first",
        edits: &[("[first_col, first_row, 0]", "[first_row, first_col, 0]")],
        outcome: "Wrong",
    },
    Answer {
        puzzle: "tma",
        idea: "no fence",
        edits: &[("            hopper::fence_barrier_init();\n", "")],
        outcome: "BarrierNotFenced",
    },
    Answer {
        puzzle: "tma",
        idea: "one thread waits, and all read behind a barrier",
        edits: &[(
            "first_row, 0], barrier);\n        }\n        thread::sync_threads();\n        barrier.wait(0);",
            "first_row, 0], barrier);\n            barrier.wait(0);\n        }\n        thread::sync_threads();",
        )],
        outcome: RIGHT,
    },
    Answer {
        puzzle: "tma",
        idea: "an arrival for each thread",
        edits: &[("barrier.init(1)", "barrier.init(128)")],
        outcome: "Deadlock",
    },
    Answer {
        puzzle: "tma",
        idea: "the bytes behind the load",
        edits: &[(
            "            barrier.arrive_expecting(TILE_BYTES as u32);\n            hopper::load_tile(tile, 0, x, [first_col, first_row, 0], barrier);\n",
            "            hopper::load_tile(tile, 0, x, [first_col, first_row, 0], barrier);\n            barrier.arrive_expecting(TILE_BYTES as u32);\n",
        )],
        outcome: RIGHT,
    },
    Answer {
        puzzle: "mma",
        idea: "the second and the third element of A exchanged",
        edits: &[(
            "                a.get_unchecked(element(row + g + 8, q)),\n                a.get_unchecked(element(row + g, q + 4)),",
            "                a.get_unchecked(element(row + g, q + 4)),\n                a.get_unchecked(element(row + g + 8, q)),",
        )],
        outcome: "Wrong",
    },
    Answer {
        puzzle: "mma",
        idea: "B by rows",
        edits: &[(
            "element(col + g, q)), b.get_unchecked(element(col + g, q + 4))",
            "element(col + q, g)), b.get_unchecked(element(col + q + 4, g))",
        )],
        outcome: "Wrong",
    },
    Answer {
        puzzle: "mma",
        idea: "the sums as A's elements",
        edits: &[("(row + g + i / 2 * 8, col + 2 * q + i % 2)", "(row + g + i % 2 * 8, col + q + i / 2 * 4)")],
        outcome: "Wrong",
    },
    Answer {
        puzzle: "wgmma",
        idea: "the same 8 terms four times",
        edits: &[("of_a.offset(32 * step), of_b.offset(32 * step)", "of_a.offset(0 * step), of_b.offset(0 * step)")],
        outcome: "Wrong",
    },
    Answer {
        puzzle: "wgmma",
        idea: "no wait for the products",
        edits: &[("            sums.wait::<0>();\n", "")],
        outcome: "SumsNotAwaited",
    },
    Answer {
        puzzle: "wgmma",
        idea: "one group may be under way",
        edits: &[("sums.wait::<0>();", "sums.wait::<1>();")],
        outcome: "SumsNotAwaited",
    },
    Answer {
        puzzle: "wgmma",
        idea: "no barrier before the next tiles",
        edits: &[(
            "            sums.wait::<0>();\n            thread::sync_threads();",
            "            sums.wait::<0>();",
        )],
        outcome: "UnwrittenShared",
    },
    Answer {
        puzzle: "wgmma",
        idea: "no fence before the products",
        edits: &[("            wgmma::fence();\n", "")],
        outcome: "RegistersNotFenced",
    },
    Answer {
        puzzle: "proxy-fence",
        idea: "rounding, and a barrier alone",
        edits: &[("            hopper::fence_async_shared();\n", "")],
        outcome: "NotFenced",
    },
    Answer {
        puzzle: "proxy-fence",
        idea: "the fence behind the barrier",
        edits: &[(
            "            hopper::fence_async_shared();\n            thread::sync_threads();",
            "            thread::sync_threads();\n            hopper::fence_async_shared();",
        )],
        outcome: "NotFenced",
    },
    Answer {
        puzzle: "proxy-fence",
        idea: "one thread fences for all",
        edits: &[(
            "            hopper::fence_async_shared();\n",
            "            if t == 0 {\n                hopper::fence_async_shared();\n            }\n",
        )],
        outcome: "NotFenced",
    },
    Answer {
        puzzle: "proxy-fence",
        idea: "A alone is rounded",
        edits: &[("for i in 0..(OF_A + OF_B) / 128", "for i in 0..OF_A / 128")],
        outcome: "Wrong",
    },
    Answer {
        puzzle: "proxy-fence",
        idea: "the fence alone",
        edits: &[(
            "            hopper::fence_async_shared();\n            thread::sync_threads();\n",
            "            hopper::fence_async_shared();\n",
        )],
        outcome: "Race",
    },
    Answer {
        puzzle: "low-bits",
        idea: "what was lost, with the wrong sign",
        edits: &[("(next - self.sum) - term", "term - (next - self.sum)")],
        outcome: "Wrong",
    },
    Answer {
        puzzle: "low-bits",
        idea: "what is lost is not taken off the next term",
        edits: &[("let term = x - self.lost;", "let term = x;")],
        outcome: "Wrong",
    },
    Answer {
        puzzle: "low-bits",
        idea: "the loss worked out with the new sum in place of the old one",
        edits: &[(
            "        self.lost = (next - self.sum) - term;\n        self.sum = next;",
            "        self.sum = next;\n        self.lost = (next - self.sum) - term;",
        )],
        outcome: "Wrong",
    },
    Answer {
        puzzle: "low-bits",
        idea: "losses are added up beside the sum, whichever of the two is larger (Knuth), and taken off at the end",
        edits: &[(
            "let term = x - self.lost;\n        let next = self.sum + term;\n        self.lost = (next - self.sum) - term;",
            "let next = self.sum + x;\n        let of_x = next - self.sum;\n        self.lost = self.lost + ((next - (next - of_x + of_x)) + ((of_x - x) + ((next - of_x) - self.sum)));",
        )],
        outcome: RIGHT,
    },
    Answer {
        puzzle: "split",
        idea: "the large product first",
        edits: &[
            ("mma_m16n8k8_tf32(low_a, high_b, [0.0; 4])", "mma_m16n8k8_tf32(high_a, high_b, [0.0; 4])"),
            ("mma_m16n8k8_tf32(high_a, high_b, part)", "mma_m16n8k8_tf32(low_a, high_b, part)"),
        ],
        outcome: RIGHT,
    },
    Answer {
        puzzle: "split",
        idea: "one of the small products is left out",
        edits: &[(
            "            let part = mma_m16n8k8_tf32(high_a, low_b, part);\n",
            "            let _: [f32; 2] = low_b;\n",
        )],
        outcome: "Wrong",
    },
    Answer {
        puzzle: "split",
        idea: "no promotion",
        edits: &[
            ("low_a, high_b, [0.0; 4])", "low_a, high_b, sums)"),
            (
                "            for i in 0..4 {\n                sums[i] += part[i];\n            }\n",
                "            sums = part;\n",
            ),
        ],
        outcome: "Wrong",
    },
    Answer {
        puzzle: "split",
        idea: "the other small product first",
        edits: &[
            ("mma_m16n8k8_tf32(low_a, high_b, [0.0; 4])", "mma_m16n8k8_tf32(high_a, low_b, [0.0; 4])"),
            ("mma_m16n8k8_tf32(high_a, low_b, part)", "mma_m16n8k8_tf32(low_a, high_b, part)"),
        ],
        outcome: RIGHT,
    },
    Answer {
        puzzle: "split",
        idea: "the product of the low parts in place of a mixed one",
        edits: &[("mma_m16n8k8_tf32(high_a, low_b, part)", "mma_m16n8k8_tf32(low_a, low_b, part)")],
        outcome: "Wrong",
    },
    Answer {
        puzzle: "split",
        idea: "no tensor cores",
        edits: &[
            (
                "            let part = mma_m16n8k8_tf32(low_a, high_b, [0.0; 4]);\n",
                "            let _: ([f32; 4], [f32; 2]) = (low_a, low_b);\n",
            ),
            ("            let part = mma_m16n8k8_tf32(high_a, low_b, part);\n", ""),
            ("            let part = mma_m16n8k8_tf32(high_a, high_b, part);\n", ""),
            (
                "                sums[i] += part[i];\n",
                "                for l in 0..8 {\n                    let of_a = a.get_unchecked(element(row + g + i / 2 * 8, l));\n                    let of_b = b.get_unchecked(element(col + 2 * q + i % 2, l));\n                    sums[i] = math::fma(of_a, of_b, sums[i]);\n                }\n",
            ),
        ],
        outcome: "Score",
    },
    Answer {
        puzzle: "split",
        idea: "low parts that are not rounded",
        edits: &[
            ("convert::tf32(of_a[i] - high_a[i])", "of_a[i] - high_a[i]"),
            ("convert::tf32(of_b[i] - high_b[i])", "of_b[i] - high_b[i]"),
        ],
        outcome: RIGHT,
    },
    Answer {
        puzzle: "pipeline",
        idea: "the producer does not wait",
        edits: &[(
            "                    empty.wait((round & 1) ^ 1);\n",
            "                    let _ = (empty, round);\n",
        )],
        outcome: "TooManyArrivals",
    },
    Answer {
        puzzle: "pipeline",
        idea: "the producer waits for the consumers' parity",
        edits: &[("empty.wait((round & 1) ^ 1)", "empty.wait(round & 1)")],
        outcome: "Deadlock",
    },
    Answer {
        puzzle: "pipeline",
        idea: "the stage is given back before the products are over",
        edits: &[(
            "            sums.wait::<0>();\n            empty.arrive();",
            "            empty.arrive();\n            sums.wait::<0>();",
        )],
        outcome: "Race",
    },
    Answer {
        puzzle: "pipeline",
        idea: "nothing is given back",
        edits: &[("            empty.arrive();\n", "            let _ = empty;\n")],
        outcome: "Deadlock",
    },
    Answer {
        puzzle: "pipeline",
        idea: "the parity of the step in place of the round",
        edits: &[("full.wait(round & 1)", "full.wait(step & round & 1)")],
        outcome: "UnwrittenShared",
    },
    Answer {
        puzzle: "pipeline",
        idea: "in round 0 nobody waits for an empty stage",
        edits: &[(
            "                    empty.wait((round & 1) ^ 1);\n",
            "                    if round > 0 {\n                        empty.wait((round & 1) ^ 1);\n                    }\n",
        )],
        outcome: RIGHT,
    },
    Answer {
        puzzle: "pipeline",
        idea: "the producer waits behind its loads: nothing is loaded while something is multiplied",
        edits: &[
            ("                    empty.wait((round & 1) ^ 1);\n", ""),
            (
                "b, [32 * step, col, 0], full);\n",
                "b, [32 * step, col, 0], full);\n                    empty.wait(round & 1);\n",
            ),
        ],
        outcome: "Judge",
    },
];
