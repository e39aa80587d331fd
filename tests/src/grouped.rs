//! Groups of products that differ in everything, against the products alone: the same bits, and in f64.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tilewright::kernels::GroupedKernel;
use tilewright::plan::{Description, GemmPlan, GroupedPlan, Options};
use tilewright::{Device, DeviceMatrix, Error, Order, Orders, Sizes};

use crate::{Layout, Layouts, Operand, Problem};

/// A product of a group.
pub struct Member {
    /// The product. All of a group have the same factors.
    pub problem: Problem,
}

/// What has come of a group.
pub struct Outcome {
    /// C of each product.
    pub results: Vec<Operand>,
    /// The kernel of each product; none of those without results.
    pub kernels: Vec<Option<&'static GroupedKernel>>,
    /// How many launches there were.
    pub launches: usize,
}

impl Member {
    /// Any product: sizes from 0 to `most`, some of them much smaller; any layouts, or these of A and B; gaps, and offsets.
    pub fn any(random: &mut StdRng, most: usize, orders: Option<Orders>, [alpha, beta]: [f32; 2]) -> Self {
        let mut extent = || {
            let most = [most, most, most.min(9), most.min(1)][random.random_range(0..4)];
            let extent = random.random_range(0..=most);
            // What has one row or one column is row-major or column-major, whichever its strides say.
            if extent == 1 && orders.is_some() { 2 } else { extent }
        };
        let [m, n, k] = [extent(), extent(), extent()];
        let mut layout = |order: Option<Order>, may_be_spread: bool| Layout {
            order: order.unwrap_or(Order::ALL[random.random_range(0..2)]),
            step: if may_be_spread && random.random_range(0..6) == 0 { 2 } else { 1 },
            padding: [0, 0, 1, 4][random.random_range(0..4)],
            offset: [0, 0, 1, 2, 4][random.random_range(0..5)],
        };
        let any = orders.is_none();
        let (a, b) = (layout(orders.map(|it| it.a), any), layout(orders.map(|it| it.b), any));
        let layouts = Layouts { a, b, c: layout(orders.map(|_| Order::RowMajor), any) };
        Self { problem: Problem::new(Sizes { m, n, k }, layouts, random.random()).scaled(alpha, beta) }
    }

    /// So many of them.
    pub fn group(seed: u64, count: usize, most: usize, orders: Option<Orders>, factors: [f32; 2]) -> Vec<Self> {
        let mut random = StdRng::seed_from_u64(seed);
        (0..count).map(|_| Self::any(&mut random, most, orders, factors)).collect()
    }

    /// What is wrong with it, which is a product of a group.
    fn named(&self, product: usize, what: String) -> String {
        format!("product {product}, {:?} and {:?}: {what}", self.problem.a, self.problem.b)
    }

    /// A, B and C on a device.
    fn on(&self, device: &Device) -> Result<[DeviceMatrix; 3], Error> {
        let Problem { a, b, c, .. } = &self.problem;
        let upload = |operand: &Operand| {
            let memory = device.upload(&operand.memory)?;
            DeviceMatrix::new(memory, operand.rows(), operand.cols(), operand.strides())?
                .moved_by(operand.extent().start)
        };
        Ok([upload(a)?, upload(b)?, upload(c)?])
    }

    /// C as a kernel has left it.
    fn result(&self, c: &DeviceMatrix) -> Result<Operand, Error> {
        let mut result = self.problem.c.clone();
        c.buffer().copy_to(&mut result.memory)?;
        Ok(result)
    }

    /// The product alone, by the kernel that has the same body.
    ///
    /// # Errors
    /// Those of the plan.
    pub fn alone(&self, device: &Device, kernel: &GroupedKernel) -> Result<Operand, Error> {
        let [a, b, mut c] = self.on(device)?;
        let &Problem { alpha, beta, .. } = &self.problem;
        let product = Description::of(alpha, &a, &b, beta, &c)?;
        let plan = GemmPlan::new(device, &product, &Options { splits: Some(1), ..Options::from(kernel.single) })?;
        plan.run(device, alpha, &a, &b, beta, &mut c, &mut plan.workspace(device)?)?;
        self.result(&c)
    }
}

/// The layouts that a kernel is for; none if it takes any.
fn orders(kernel: &GroupedKernel) -> Option<Orders> {
    Some(Orders { a: kernel.single.a?, b: kernel.single.b? })
}

/// Has a kernel compute groups of any products, with several factors, and compares each product.
///
/// # Errors
/// What is wrong, in words.
pub fn check_kernel(device: &Device, kernel: &'static GroupedKernel) -> Result<(), String> {
    for (seed, factors) in [[1.0, 0.0], [-1.5, 0.5], [0.0, 2.0]].into_iter().enumerate() {
        // The executor's models of Hopper's instructions are slow.
        let is_slow = device.is_cpu() && kernel.facts.arch.is_some();
        let (count, most) = if is_slow { (6, 70) } else { (25, 3 * kernel.tile.m as usize) };
        let members = Member::group(seed as u64, count, most, orders(kernel), factors);
        let outcome =
            check(device, &kernel.single.into(), &members).map_err(|what| format!("{}: {what}", kernel.name))?;
        if outcome.launches != 1 {
            return Err(format!("{}: {} launches of one kernel", kernel.name, outcome.launches));
        }
    }
    Ok(())
}

/// Computes a group.
///
/// # Errors
/// Those of the plan and of its run.
pub fn run(device: &Device, options: &Options, members: &[Member]) -> Result<Outcome, Error> {
    let mut matrices = members.iter().map(|member| member.on(device)).collect::<Result<Vec<_>, _>>()?;
    let products = matrices.iter_mut().map(|[a, b, c]| (&*a, &*b, c));
    let mut plan = GroupedPlan::new(device, options, products)?;
    let [alpha, beta] = members.first().map_or([1.0, 0.0], |it| [it.problem.alpha, it.problem.beta]);
    plan.run(alpha, beta)?;
    let kernels = (0..members.len()).map(|product| plan.kernel_of(product)).collect();
    let launches = plan.kernels().len();
    drop(plan);
    let results = members.iter().zip(&matrices).map(|(member, [_, _, c])| member.result(c));
    Ok(Outcome { results: results.collect::<Result<_, _>>()?, kernels, launches })
}

/// Computes a group, and compares each product in f64, and bit by bit with what the kernel that has the same body gives alone. What lies
/// around the results has to be as it was.
///
/// # Errors
/// What is wrong, in words.
pub fn check(device: &Device, options: &Options, members: &[Member]) -> Result<Outcome, String> {
    let outcome = run(device, options, members).map_err(|error| error.to_string())?;
    for (product, (member, result)) in members.iter().zip(&outcome.results).enumerate() {
        member.problem.expected().check(result).map_err(|what| member.named(product, what))?;
    }
    check_bits(device, members, &outcome)?;
    Ok(outcome)
}

/// Compares each product bit by bit with what the kernel that has the same body gives alone.
///
/// # Errors
/// What is wrong, in words.
pub fn check_bits(device: &Device, members: &[Member], outcome: &Outcome) -> Result<(), String> {
    for (product, (member, result)) in members.iter().zip(&outcome.results).enumerate() {
        result.check_surroundings().map_err(|what| member.named(product, what))?;
        // Without terms, a kernel of products alone still asks how operands lie that nobody reads. The results are exact anyway.
        let has_terms = member.problem.a.cols() > 0;
        let Some(kernel) = outcome.kernels[product].filter(|_| has_terms) else { continue };
        let alone = member.alone(device, kernel).map_err(|error| member.named(product, error.to_string()))?;
        if alone.bits() != result.bits() {
            let what = format!("other bits in {} than in {}", kernel.name, kernel.single.name);
            return Err(member.named(product, what));
        }
    }
    Ok(())
}
