//! The instructions of tensor cores: how their operands lie in registers and in memory, and what comes of random ones.

use rand::SeedableRng;
use rand::rngs::StdRng;

use super::kernels::{mma, wgmma};
use super::machine::{Error, Launch, Machine};
use super::number::Format;
use super::numerics::{Dot, Numerics, Terms};
use super::operands::{Kind, Operands};
use super::outcome::{Outcome, hex};
use super::probes::{Probe, probes};
use super::words::{Content, kernel};
use crate::device_features::Launcher;

/// An instruction.
#[derive(Clone, Copy)]
pub struct Product {
    /// The kernel.
    pub name: &'static str,
    /// Runs it.
    launch: Launch,
    /// Of A and B.
    pub format: Format,
    /// Of the result.
    rows: usize,
    columns: usize,
    /// Whether it adds to C.
    adds: bool,
    /// Whether it is looked at closely. The others of the same format have to do the same as one that is.
    pub is_probed: bool,
}

/// An element of a result, and what both sides make of it.
#[derive(Clone, Copy, Debug)]
pub struct Element {
    /// The kind of its operands.
    pub kind: Kind,
    /// The operands.
    pub dot: Dot,
    /// What the executor makes of them.
    pub executor: u32,
    /// What the other side does.
    pub other: u32,
}

/// A probe, and what both sides make of it.
#[derive(Clone, Debug)]
pub struct Answer {
    /// What is asked.
    pub question: String,
    /// The operands and the results.
    pub element: Element,
}

/// All of them.
pub fn products() -> Vec<Product> {
    let mma = |(name, launch): (&'static str, Launch), format| Product {
        name,
        launch,
        format,
        rows: 16,
        columns: 8,
        adds: true,
        is_probed: true,
    };
    let mut products = vec![
        mma(kernel!(mma::mma_m16n8k8_tf32), Format::Tf32),
        mma(kernel!(mma::mma_m16n8k16_bf16), Format::Bf16),
        mma(kernel!(mma::mma_m16n8k16_fp16), Format::Fp16),
    ];
    macro_rules! wgmma {
        ($format:ident, $columns:literal: $set_registers:ident $add_registers:ident $set_shared:ident $add_shared:ident) => {
            for ((name, launch), adds, is_shared) in [
                (kernel!(wgmma::$set_registers), false, false),
                (kernel!(wgmma::$add_registers), true, false),
                (kernel!(wgmma::$set_shared), false, true),
                (kernel!(wgmma::$add_shared), true, true),
            ] {
                let (format, rows, columns) = (Format::$format, wgmma::ROWS, $columns);
                let is_probed = adds && is_shared && columns == 128;
                products.push(Product { name, launch, format, rows, columns, adds, is_probed });
            }
        };
    }
    wgmma!(Tf32, 128: wgmma_m64n128k8_tf32_set_registers wgmma_m64n128k8_tf32_add_registers
        wgmma_m64n128k8_tf32_set_shared wgmma_m64n128k8_tf32_add_shared);
    wgmma!(Tf32, 256: wgmma_m64n256k8_tf32_set_registers wgmma_m64n256k8_tf32_add_registers
        wgmma_m64n256k8_tf32_set_shared wgmma_m64n256k8_tf32_add_shared);
    wgmma!(Bf16, 128: wgmma_m64n128k16_bf16_set_registers wgmma_m64n128k16_bf16_add_registers
        wgmma_m64n128k16_bf16_set_shared wgmma_m64n128k16_bf16_add_shared);
    wgmma!(Bf16, 256: wgmma_m64n256k16_bf16_set_registers wgmma_m64n256k16_bf16_add_registers
        wgmma_m64n256k16_bf16_set_shared wgmma_m64n256k16_bf16_add_shared);
    wgmma!(Fp16, 128: wgmma_m64n128k16_fp16_set_registers wgmma_m64n128k16_fp16_add_registers
        wgmma_m64n128k16_fp16_set_shared wgmma_m64n128k16_fp16_add_shared);
    wgmma!(Fp16, 256: wgmma_m64n256k16_fp16_set_registers wgmma_m64n256k16_fp16_add_registers
        wgmma_m64n256k16_fp16_set_shared wgmma_m64n256k16_fp16_add_shared);
    macro_rules! others {
        ($format:ident, $columns:literal: $($name:ident)*) => { $(
            let (name, launch) = kernel!(wgmma::$name);
            let (format, rows, columns) = (Format::$format, wgmma::ROWS, $columns);
            products.push(Product { name, launch, format, rows, columns, adds: true, is_probed: false });
        )* };
    }
    others!(Bf16, 64: wgmma_m64n64k16_bf16_registers_mn wgmma_m64n64k16_bf16_shared_k_mn
        wgmma_m64n64k16_bf16_shared_mn_k wgmma_m64n64k16_bf16_shared_mn_mn);
    others!(Bf16, 128: wgmma_m64n128k16_bf16_registers_mn wgmma_m64n128k16_bf16_shared_k_mn
        wgmma_m64n128k16_bf16_shared_mn_k wgmma_m64n128k16_bf16_shared_mn_mn);
    others!(Bf16, 256: wgmma_m64n256k16_bf16_registers_mn wgmma_m64n256k16_bf16_shared_k_mn
        wgmma_m64n256k16_bf16_shared_mn_k wgmma_m64n256k16_bf16_shared_mn_mn);
    others!(Fp16, 128: wgmma_m64n128k16_fp16_registers_mn wgmma_m64n128k16_fp16_shared_k_mn
        wgmma_m64n128k16_fp16_shared_mn_k wgmma_m64n128k16_fp16_shared_mn_mn);
    others!(Bf16, 160: wgmma_m64n160k16_bf16_add_registers wgmma_m64n160k16_bf16_add_shared);
    others!(Bf16, 176: wgmma_m64n176k16_bf16_add_registers wgmma_m64n176k16_bf16_add_shared);
    others!(Bf16, 192: wgmma_m64n192k16_bf16_add_registers wgmma_m64n192k16_bf16_add_shared);
    products
}

impl Product {
    /// The elements of a result.
    fn elements(&self) -> usize {
        self.rows * self.columns
    }

    /// Whether a warp carries it out.
    fn is_of_warp(&self) -> bool {
        self.rows == 16
    }

    /// The words of a case.
    fn pack(&self, operands: &Operands) -> Vec<u32> {
        let Operands { a, b, c, .. } = operands;
        if !self.is_of_warp() {
            return [a.as_flattened(), b.as_flattened(), c].concat();
        }
        // PTX ISA, "Matrix Fragments for mma": in units of 32 bits they are the same for all formats.
        let c = |row: usize, column: usize| c[row * self.columns + column];
        let registers: [&dyn Fn(usize, usize) -> u32; 10] = [
            &|g, q| a[g][q],
            &|g, q| a[g + 8][q],
            &|g, q| a[g][q + 4],
            &|g, q| a[g + 8][q + 4],
            &|g, q| b[g][q],
            &|g, q| b[g][q + 4],
            &|g, q| c(g, 2 * q),
            &|g, q| c(g, 2 * q + 1),
            &|g, q| c(g + 8, 2 * q),
            &|g, q| c(g + 8, 2 * q + 1),
        ];
        registers.iter().flat_map(|register| (0..32).map(move |lane| register(lane / 4, lane % 4))).collect()
    }

    /// Where an element is among the words of a result.
    fn position(&self, row: usize, column: usize) -> usize {
        if !self.is_of_warp() {
            return row * self.columns + column;
        }
        let lane = row % 8 * 4 + column / 2;
        (row / 8 * 2 + column % 2) * 32 + lane
    }

    /// What each side makes of operands: the results by rows.
    fn run(&self, machine: &Machine, operands: &[Operands]) -> Result<Vec<Vec<u32>>, Error> {
        let input: Vec<u32> = operands.iter().flat_map(|operands| self.pack(operands)).collect();
        let output = machine.run(self.launch, operands.len() as u32, &input, operands.len() * self.elements())?;
        let places = |words: &[u32]| -> Vec<u32> {
            let place = |i: usize| words[self.position(i / self.columns, i % self.columns)];
            (0..self.elements()).map(place).collect()
        };
        Ok(output.chunks(self.elements()).map(places).collect())
    }

    /// What the parameters say that comes out.
    fn expected(&self, numerics: &Numerics, operands: &Operands) -> Vec<u32> {
        let dot = |i: usize| self.dot(operands, i / self.columns, i % self.columns);
        (0..self.elements()).map(|i| numerics.sum(&Terms::new(self.format, &dot(i)))).collect()
    }

    /// What makes up an element.
    fn dot(&self, operands: &Operands, row: usize, column: usize) -> Dot {
        let dot = operands.dot(row, column);
        if self.adds { dot } else { Dot { c: 0, ..dot } }
    }

    /// Both results of some operands, by rows; without another machine the second is what `numerics` says.
    #[allow(clippy::type_complexity, reason = "two of the same")]
    fn both(
        &self,
        executor: &Machine,
        other: Option<&Machine>,
        numerics: &Numerics,
        operands: &[Operands],
    ) -> Result<(Vec<Vec<u32>>, Vec<Vec<u32>>), Error> {
        let here = self.run(executor, operands)?;
        let there = match other {
            Some(other) => self.run(other, operands)?,
            None => operands.iter().map(|operands| self.expected(numerics, operands)).collect(),
        };
        Ok((here, there))
    }

    /// Has both sides multiply at least so many elements' operands. Returns the elements, too, if `keeps`.
    ///
    /// # Errors
    /// What a launch reports.
    pub fn compare(
        &self,
        executor: &Machine,
        other: Option<&Machine>,
        wanted: usize,
        seed: u64,
        keeps: bool,
    ) -> Result<(Outcome, Vec<Element>), Error> {
        let numerics = Numerics::of_hopper(self.format);
        let mut rng = StdRng::seed_from_u64(seed);
        // Operands of all kinds, at least of what is looked at closely.
        let cases = wanted.div_ceil(self.elements());
        let cases = if self.is_probed { cases.next_multiple_of(Kind::ALL.len()) } else { cases };
        let mut outcome = Outcome::new(self.name);
        let mut elements = Vec::new();
        // A few at a time: the operands take memory.
        for batch in (0..cases).collect::<Vec<_>>().chunks(256) {
            let kind = |case: usize| Kind::ALL[case % Kind::ALL.len()];
            let operands: Vec<_> = batch
                .iter()
                .map(|&case| Operands::random(&mut rng, self.format, kind(case), self.rows, self.columns))
                .collect();
            let (here, there) = self.both(executor, other, &numerics, &operands)?;
            for (position, (here, there)) in here.into_iter().zip(there).enumerate() {
                let (case, operands) = (batch[position], &operands[position]);
                for (i, (executor, other)) in here.into_iter().zip(there).enumerate() {
                    let (row, column) = (i / self.columns, i % self.columns);
                    let dot = self.dot(operands, row, column);
                    outcome.enter(Content::Numbers, executor, other, || {
                        (format!("case {case} ({:?}), row {row}, column {column}", kind(case)), dot_in_hex(&dot))
                    });
                    if keeps {
                        elements.push(Element { kind: kind(case), dot, executor, other });
                    }
                }
            }
        }
        outcome.cases = cases;
        Ok((outcome, elements))
    }

    /// Has both sides answer the probes, and enters what they say into an outcome. Each is on the diagonal of a result, with other
    /// probes beside it.
    ///
    /// # Errors
    /// What a launch reports.
    pub fn probe(
        &self,
        executor: &Machine,
        other: Option<&Machine>,
        outcome: &mut Outcome,
    ) -> Result<Vec<Answer>, Error> {
        let numerics = Numerics::of_hopper(self.format);
        let probes = probes(self.format);
        let places = self.rows.min(self.columns);
        let operands: Vec<_> = probes
            .chunks(places)
            .map(|probes| {
                let mut operands = Operands::zeros(self.format, self.rows, self.columns);
                for (i, probe) in probes.iter().enumerate() {
                    (operands.a[i], operands.b[i]) = (probe.dot.a, probe.dot.b);
                    operands.c[i * self.columns + i] = probe.dot.c;
                }
                operands
            })
            .collect();
        let (here, there) = self.both(executor, other, &numerics, &operands)?;
        let mut answers = Vec::new();
        for (i, Probe { question, dot }) in probes.into_iter().enumerate() {
            let (case, place) = (i / places, i % places * (self.columns + 1));
            let (executor, other) = (here[case][place], there[case][place]);
            outcome.enter(Content::Numbers, executor, other, || (format!("probe: {question}"), dot_in_hex(&dot)));
            answers.push(Answer { question, element: Element { kind: Kind::Special, dot, executor, other } });
        }
        outcome.cases += operands.len();
        Ok(answers)
    }
}

/// The operands of an element.
fn dot_in_hex(Dot { a, b, c }: &Dot) -> String {
    format!("a {}; b {}; c {c:08x}", hex(a), hex(b))
}
