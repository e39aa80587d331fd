//! Constants of the planner's model: JSON.

use std::sync::Arc;

use tilewright::plan::{
    ConstantsChoice, Description, DeviceFacts, MeasuredConstants, Options, Placement, Processor, Tables, plan,
};
use tilewright::{Precision, Sizes};

/// A text is refused with a reason, or is of constants that plans can be made by, and that are the same when they have been written.
///
/// # Panics
/// If not.
pub fn check(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let measured = match MeasuredConstants::parse(text) {
        Ok(measured) => measured,
        Err(fault) => return crate::has_reason(fault),
    };
    let written = serde_json::to_string(&measured).expect("constants can be written");
    assert_eq!(MeasuredConstants::parse(&written).as_ref(), Ok(&measured));

    let on = measured.on.clone();
    let processor = Processor::Gpu { compute_capability: on.compute_capability, sm_90a: true };
    // The limits of a GPU that has all kernels: those of an unknown one would leave few.
    let device = DeviceFacts {
        name: on.gpu,
        processor,
        multiprocessors: on.multiprocessors,
        ..DeviceFacts::of_gpu("NVIDIA H200", (9, 0), 132, 140 << 30)
    };
    let constants = ConstantsChoice::This(Arc::new(measured));
    for ([m, n, k], batch) in [([512, 512, 512], 1), ([4000, 1, 300], 3), ([37, 4099, 5], 2)] {
        let placed = |rows: usize, cols| Placement { batch_stride: rows * cols, ..Placement::row_major(cols) };
        let product = Description::new(Sizes { m, n, k }, batch, placed(m, k), placed(k, n), placed(m, n));
        let Ok(product) = product else { continue };
        for precision in [Precision::Fp32, Precision::Tf32] {
            let options = Options { tables: Tables::None, constants: constants.clone(), ..Options::from(precision) };
            match plan(&device, &product, &options) {
                Ok(plan) => {
                    let explanation = plan.explanation();
                    assert!(explanation.constants.as_ref().is_some_and(|source| source.contains("measured")));
                    assert!(plan.splits() >= 1 && !explanation.to_string().is_empty());
                }
                Err(error) => crate::has_reason(error),
            }
        }
    }
}
