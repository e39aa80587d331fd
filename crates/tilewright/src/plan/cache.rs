//! Plans that are kept with a device, for all of its handles.
//!
//! ```text
//!  Description, Options ─► Key ──► kept? ── yes ─► that plan
//!                                     └── no ──► make one, load its kernels, keep it ─► the new plan
//! ```
//!
//! The lock is held to look, and to keep: never while a plan is made, a kernel is loaded, or anything runs. Two threads that
//! want the same plan at once may both make it, and have equal ones.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::gemm_plan::GemmPlan;
use super::options::Options;
use super::table::Tables;
use crate::constants::ConstantsChoice;
use crate::description::Description;
use crate::{Accuracy, Device, Error, Precision, Wanted};

/// The plans that are kept, at most.
const MOST_PLANS: usize = 1024;

/// What a plan is kept by. Two that are equal give the same plan on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    product: Description,
    wanted: Asked,
    /// The address of the kernel that is named.
    kernel: Option<usize>,
    splits: Option<u32>,
    tables: Which,
    invariant: bool,
    constants: Which,
}

/// [`Wanted`], with errors as their bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Asked {
    Precision(Precision),
    Guarantee(u64),
    Tolerance(u64),
}

impl From<Wanted> for Asked {
    fn from(wanted: Wanted) -> Self {
        match wanted {
            Wanted::Precision(precision) => Self::Precision(precision),
            Wanted::Accuracy(Accuracy::Guarantee(error)) => Self::Guarantee(error.to_bits()),
            Wanted::Accuracy(Accuracy::Tolerance(error)) => Self::Tolerance(error.to_bits()),
        }
    }
}

/// Which tables, or constants, a plan was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Which {
    /// What there is for the GPU.
    Default,
    /// No tables, or the constants that are built in.
    None,
    /// The one at this address.
    This(usize),
}

impl Key {
    fn of(product: &Description, options: &Options) -> Self {
        Self {
            product: product.in_alignment_classes(),
            wanted: options.wanted().into(),
            kernel: options.kernel.map(|kernel| std::ptr::from_ref(kernel).addr()),
            splits: options.splits,
            tables: match &options.tables {
                Tables::None => Which::None,
                Tables::This(table) => Which::This(Arc::as_ptr(table).addr()),
            },
            invariant: options.invariant,
            constants: match &options.constants {
                ConstantsChoice::Stored => Which::Default,
                ConstantsChoice::BuiltIn => Which::None,
                ConstantsChoice::This(constants) => Which::This(Arc::as_ptr(constants).addr()),
            },
        }
    }
}

/// The plans of a device.
#[derive(Debug, Default)]
struct Plans {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    kept: HashMap<Key, Kept>,
    /// Counts the uses of all plans.
    clock: u64,
    /// How many plans were made.
    made: u64,
}

#[derive(Debug)]
struct Kept {
    plan: Arc<GemmPlan>,
    /// Keep the table and the constants of the key, so that no others get their addresses.
    _tables: Tables,
    _constants: ConstantsChoice,
    /// When it was used last.
    used: u64,
}

impl Plans {
    /// Nothing that holds the lock leaves what it guards half changed, so a poisoned one is in order.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn get(&mut self, key: &Key) -> Option<Arc<GemmPlan>> {
        self.clock += 1;
        let kept = self.kept.get_mut(key)?;
        kept.used = self.clock;
        Some(kept.plan.clone())
    }

    /// Keeps a plan, in place of the one that was not used for the longest time if there are too many.
    fn insert(&mut self, key: Key, plan: Arc<GemmPlan>, options: &Options) {
        if self.kept.len() >= MOST_PLANS
            && let Some(oldest) = self.kept.iter().min_by_key(|(_, kept)| kept.used).map(|(key, _)| *key)
        {
            self.kept.remove(&oldest);
        }
        self.made += 1;
        let (tables, constants) = (options.tables.clone(), options.constants.clone());
        self.kept.insert(key, Kept { plan, _tables: tables, _constants: constants, used: self.clock });
    }
}

impl Device {
    /// The plan for a product, with its kernels loaded: the one that an earlier call has made, or else a new one, as
    /// [`GemmPlan::new`] makes it. All handles of the device share what was made. Up to 1024 plans are kept; then the one that was
    /// not used for the longest time makes way.
    ///
    /// Products count as the same if nothing in them differs but numbers, addresses, and alignment beyond 16 bytes, which is all that
    /// kernels make use of; and options if they ask for the same. To find a plan that is there takes a small fraction of a
    /// microsecond, and allocates nothing.
    ///
    /// ```
    /// # use cuda_std::executor::Checks;
    /// # use tilewright::plan::{Description, GemmPlan, Options, Placement};
    /// # use tilewright::{Device, Error, Precision, Sizes};
    /// # let device = Device::cpu(Checks::Bounds);
    /// # let [a, b, c] = [32, 48, 48].map(Placement::row_major);
    /// # let product = Description::new(Sizes { m: 16, n: 48, k: 32 }, 1, a, b, c)?;
    /// let options = Options::from(Precision::Fp32Strict);
    /// let plan = device.plan(&product, &options)?;
    /// println!("{}", plan.explanation());
    /// // The next call finds it.
    /// assert!(std::sync::Arc::ptr_eq(&plan, &device.plan(&product, &options)?));
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`GemmPlan::new`] and [`GemmPlan::load`]. Nothing is kept then.
    pub fn plan(&self, product: &Description, options: &Options) -> Result<Arc<GemmPlan>, Error> {
        self.plan_with(product, options, |plan| plan.load(self))
    }

    /// As [`Device::plan`], with the kernels loaded by `load`, which [`GemmPlan::load`] does where nothing stands against it.
    ///
    /// ```
    /// # use cuda_std::executor::Checks;
    /// # use tilewright::plan::{Description, GemmPlan, Options, Placement};
    /// # use tilewright::{Device, Error, Precision, Sizes};
    /// # let device = Device::cpu(Checks::Bounds);
    /// # let [a, b, c] = [32, 48, 48].map(Placement::row_major);
    /// # let product = Description::new(Sizes { m: 16, n: 48, k: 32 }, 1, a, b, c)?;
    /// // A program that may not load kernels now makes no plan that needs some.
    /// let refused = device.plan_with(&product, &Options::default(), |_| Err(Box::<dyn std::error::Error>::from("not now")));
    /// assert_eq!(refused.unwrap_err().to_string(), "not now");
    /// assert_eq!(device.plans_made(), 0);
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`GemmPlan::new`] and of `load`. Nothing is kept then.
    pub fn plan_with<E: From<Error>>(
        &self,
        product: &Description,
        options: &Options,
        load: impl FnOnce(&GemmPlan) -> Result<(), E>,
    ) -> Result<Arc<GemmPlan>, E> {
        let (plans, key) = (self.kept::<Plans>(), Key::of(product, options));
        if let Some(plan) = plans.lock().get(&key) {
            return Ok(plan);
        }
        let plan = Arc::new(GemmPlan::new(self, &key.product, options)?);
        load(&plan)?;
        plans.lock().insert(key, plan.clone(), options);
        Ok(plan)
    }

    /// How many plans [`Device::plan`] has made so far: those that it did not find.
    ///
    /// ```
    /// # use cuda_std::executor::Checks;
    /// # use tilewright::plan::{Description, GemmPlan, Options, Placement};
    /// # use tilewright::{Device, Error, Precision, Sizes};
    /// # let device = Device::cpu(Checks::Bounds);
    /// # let [a, b, c] = [32, 48, 48].map(Placement::row_major);
    /// # let product = Description::new(Sizes { m: 16, n: 48, k: 32 }, 1, a, b, c)?;
    /// device.plan(&product, &Options::default())?;
    /// device.plan(&product, &Options::default())?;
    /// assert_eq!(device.plans_made(), 1, "the second call has found the plan");
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    pub fn plans_made(&self) -> u64 {
        self.kept::<Plans>().lock().made
    }
}

#[cfg(test)]
mod tests {
    use cuda_std::executor::Checks;

    use super::*;
    use crate::kernels::{GEMM_NAIVE_1D_FP32, GEMM_NAIVE_2D_FP32};
    use crate::plan::{Placement, Table};
    use crate::{DeviceError, Sizes};

    fn product(m: usize, alignment: usize) -> Description {
        let placed = |cols| Placement { alignment, ..Placement::row_major(cols) };
        Description::new(Sizes { m, n: 5, k: 7 }, 1, placed(7), placed(5), placed(5)).unwrap()
    }

    #[test]
    fn a_plan_is_made_once_for_all_that_it_suits_and_for_nothing_else() {
        let device = Device::cpu(Checks::Bounds);
        let different = [
            (product(4, 256), Options::default()),
            (product(3, 256), Options::default()),
            (product(4, 4), Options::default()),
            (product(4, 256).with_factors(1.0, 0.0), Options::default()),
            (product(4, 256), Options::from(Precision::Fp32Strict)),
            (product(4, 256), Options::from(Accuracy::Guarantee(1e-6))),
            (product(4, 256), Options::from(Accuracy::Guarantee(2e-6))),
            (product(4, 256), Options::from(Accuracy::Tolerance(2e-6))),
            (product(4, 256), Options::from(&GEMM_NAIVE_1D_FP32)),
            (product(4, 256), Options::from(&GEMM_NAIVE_2D_FP32)),
            (product(4, 256), Options { splits: Some(1), ..Options::default() }),
            (product(4, 256), Options { constants: ConstantsChoice::BuiltIn, ..Options::default() }),
        ];
        let plans = different.clone().map(|(product, options)| device.plan(&product, &options).unwrap());
        assert_eq!(device.plans_made(), different.len() as u64);
        for ((product, options), plan) in different.iter().zip(&plans) {
            assert!(Arc::ptr_eq(plan, &device.clone().plan(product, options).unwrap()), "{product} {options:?}");
            assert_eq!(plan.product().m, product.m);
        }
        let same = [
            (product(4, 16), Options::default()),
            (product(4, 64), Options::from(Precision::Fp32)),
            (product(4, 256).with_factors(-3.0, 2.5), Options::default()),
        ];
        for (product, options) in same {
            assert!(Arc::ptr_eq(&plans[0], &device.plan(&product, &options).unwrap()), "{product} {options:?}");
        }
        assert_eq!(device.plans_made(), different.len() as u64);
    }

    /// There are no tables of the CPU executor, so no plan of its is made with one.
    #[test]
    fn a_table_stays_as_long_as_a_plan_that_was_made_with_it() {
        let table = || Arc::new(Table::begin("a GPU", String::new(), None, String::new()));
        let (one, other) = (table(), table());
        let with = |table: &Arc<Table>| Options { tables: Tables::This(table.clone()), ..Options::default() };
        let keys = [&one, &other].map(|table| Key::of(&product(4, 256), &with(table)));
        assert_ne!(keys[0], keys[1], "equal tables may be different ones later");
        let mut plans = Inner::default();
        let plan = Device::cpu(Checks::Bounds).plan(&product(4, 256), &Options::default()).unwrap();
        plans.insert(keys[0], plan, &with(&one));
        assert_eq!(Arc::strong_count(&one), 2);
        drop(plans);
        assert_eq!(Arc::strong_count(&one), 1);
    }

    #[test]
    fn what_fails_to_load_is_not_kept() {
        let device = Device::cpu(Checks::Bounds);
        let refused = device.plan_with(&product(4, 256), &Options::default(), |_| {
            Err(Error::from(DeviceError::OnlyOnGpus { what: "this" }))
        });
        assert!(refused.is_err());
        assert_eq!(device.plans_made(), 0);
        device.plan(&product(4, 256), &Options::default()).unwrap();
        assert_eq!(device.plans_made(), 1);
    }

    #[test]
    fn the_plan_that_was_not_used_for_the_longest_time_makes_way() {
        let device = Device::cpu(Checks::Bounds);
        let options = Options::from(&GEMM_NAIVE_1D_FP32);
        let plan = |m: usize| device.plan(&product(m, 256), &options).unwrap();
        let (first, second) = (plan(1), plan(2));
        (3..=MOST_PLANS).for_each(|m| drop(plan(m)));
        assert!(Arc::ptr_eq(&first, &plan(1)));
        plan(MOST_PLANS + 1);
        assert_eq!(device.plans_made(), MOST_PLANS as u64 + 1);
        assert!(Arc::ptr_eq(&first, &plan(1)));
        assert!(!Arc::ptr_eq(&second, &plan(2)), "it had made way");
    }
}
