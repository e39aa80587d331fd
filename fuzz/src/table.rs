//! Tables of measured times: JSON.

use std::sync::Arc;

use tilewright::Precision;
use tilewright::Sizes;
use tilewright::plan::{Description, DeviceFacts, Options, Placement, Processor, Reason, Table, Tables, plan};

/// A text is refused with a reason, or is a table that plans can be made by, and that is the same when it has been written.
///
/// # Panics
/// If not.
pub fn check(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let table = match Table::parse(text) {
        Ok(table) => table,
        Err(fault) => return crate::has_reason(fault),
    };
    let written = serde_json::to_string(&table).expect("a table can be written");
    assert_eq!(Table::parse(&written).as_ref(), Ok(&table));

    let processor = Processor::Gpu { compute_capability: (9, 0), sm_90a: true };
    let device = DeviceFacts { processor, ..DeviceFacts::of_gpu(&table.gpu, (9, 0), 132, 140 << 30) };
    // Products that the table knows, and one that it may know something like.
    let known = table.entries.iter().take(2).map(|entry| ([entry.m, entry.n, entry.k], entry.batch, entry.precision));
    let products: Vec<_> = known.chain([([512, 512, 512], 1, Precision::Fp32)]).collect();
    let tables = Tables::This(Arc::new(table));
    for ([m, n, k], batch, precision) in products {
        let placed =
            |rows: usize, cols| Placement { batch_stride: rows.saturating_mul(cols), ..Placement::row_major(cols) };
        let product = Description::new(Sizes { m, n, k }, batch, placed(m, k), placed(k, n), placed(m, n));
        let Ok(product) = product else { continue };
        match plan(&device, &product, &Options { tables: tables.clone(), ..Options::from(precision) }) {
            Ok(plan) => {
                let explanation = plan.explanation();
                assert!(plan.splits() >= 1 && !explanation.to_string().is_empty());
                if let Reason::Table { median_us, .. } = explanation.reason {
                    assert!(median_us > 0.0 && median_us.is_finite());
                }
            }
            Err(error) => crate::has_reason(error),
        }
    }
}
