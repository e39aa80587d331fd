//! Which plan a product is computed by: the fastest whose workspace fits, if it is faster than cuBLAS can be.
//!
//! What cuBLAS takes, nobody knows before. The least is what moving the matrices takes, or multiplying on CUDA cores, whichever is longer; the model
//! that estimates the plan's time has the rates. So a plan that is estimated to take less gains something, unless the model is wrong.

use std::sync::Arc;

use cuda_driver::DriverVersion;
use tilewright::plan::{Description, GemmPlan, Machine, Options};
use tilewright::{Device, kernels};

use crate::place::Place;
use crate::product::Product;
use crate::settings::Settings;
use crate::why::Why;

/// From this driver on, kernels can be loaded while a stream is captured.
const LOADS_IN_CAPTURES: DriverVersion = DriverVersion { major: 12, minor: 3 };

/// What a plan is chosen for.
pub(crate) struct Request<'a> {
    pub(crate) place: &'a Place,
    /// With the caller's stream.
    pub(crate) device: &'a Device,
    pub(crate) is_captured: bool,
    pub(crate) settings: &'a Settings,
    pub(crate) product: Description,
}

/// A plan, with what is thought of its time, in milliseconds.
pub(crate) struct Choice {
    pub(crate) plan: Arc<GemmPlan>,
    /// The least that cuBLAS takes; none on the CPU executor.
    pub(crate) least_of_cublas: Option<f64>,
}

impl Request<'_> {
    /// The fastest plan that needs at most so many bytes of workspace.
    pub(crate) fn choose(&self, workspace_bytes: usize) -> Result<Choice, Why> {
        let plan = self.plan(&self.settings.options)?;
        let plan = if plan.workspace_bytes() <= workspace_bytes { plan } else { self.smaller(&plan, workspace_bytes)? };
        let (operations, traffic) = (self.product.operations(), self.product.traffic());
        let least_of_cublas = self.place.machine.map(|machine| least_of_cublas(&machine, operations, traffic));
        if let (Some(least), Some(ours), Some(gain)) =
            (least_of_cublas, plan.explanation().estimated_ms, self.settings.min_gain_us)
            && (least - ours) * 1e3 < gain
        {
            let detail =
                format!("{} is estimated to take {ours:.4} ms, and cuBLAS at least {least:.4} ms", plan.kernel().name);
            return Err(Why::with(TOO_LITTLE, detail));
        }
        Ok(Choice { plan, least_of_cublas })
    }

    /// The fastest of the other kernels whose plan needs at most so many bytes.
    fn smaller(&self, fastest: &GemmPlan, workspace_bytes: usize) -> Result<Arc<GemmPlan>, Why> {
        for candidate in fastest.explanation().candidates.iter().filter(|candidate| candidate.refusal.is_none()) {
            let kernel = Some(kernels::find(&candidate.kernel)?);
            let plan = self.plan(&Options { kernel, ..self.settings.options.clone() })?;
            if plan.workspace_bytes() <= workspace_bytes {
                return Ok(plan);
            }
        }
        Err(Why::with("no plan's workspace fits", format!("at most {workspace_bytes} bytes")))
    }

    /// A plan, with its kernels loaded.
    fn plan(&self, options: &Options) -> Result<Arc<GemmPlan>, Why> {
        self.device.plan_with(&self.product, options, |plan| self.load(plan))
    }

    fn load(&self, plan: &GemmPlan) -> Result<(), Why> {
        if let Some(properties) = self.device.gpu_properties()
            && self.is_captured
            && properties.driver < LOADS_IN_CAPTURES
        {
            return Err(Why::new("the driver cannot load kernels while a stream is captured"));
        }
        let _relaxed = self.place.gpu.as_ref().map(|_| cuda_driver::relax_capture()).transpose()?;
        Ok(plan.load(self.device)?)
    }
}

const TOO_LITTLE: &str = "there is too little to gain";

/// Refuses a product for which a plan that took no time at all would gain too little: nothing else has to be known of those, which are many in
/// some programs.
pub(crate) fn require_something_to_gain(place: &Place, settings: &Settings, product: &Product) -> Result<(), Why> {
    let (Some(machine), Some(gain)) = (place.machine, settings.min_gain_us) else { return Ok(()) };
    let [m, n, k, count] = [product.c.rows, product.c.cols, product.a.cols, product.count].map(|extent| extent as f64);
    // Where all products read the same matrix, this is more than is moved.
    let traffic = 4.0 * count * (m * k + k * n + 2.0 * m * n);
    let least = least_of_cublas(&machine, 2.0 * count * m * n * k, traffic);
    if least * 1e3 < gain {
        return Err(Why::with(TOO_LITTLE, format!("cuBLAS may take {least:.4} ms")));
    }
    Ok(())
}

/// The least time that so many operations take on CUDA cores, or moving so many bytes, in milliseconds.
fn least_of_cublas(machine: &Machine, operations: f64, traffic: f64) -> f64 {
    let (computing, moving) = (operations / machine.fp32_rate, traffic / machine.bandwidth);
    (machine.launch_seconds + computing.max(moving)) * 1e3
}
