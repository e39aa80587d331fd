//! Which constants the model goes by for a plan, and where they are from.

use std::sync::Arc;

use super::model;
use crate::constants::{Constants, ConstantsChoice, MeasuredConstants, MeasuredOn};
use crate::device_facts::{DeviceFacts, Processor};
use crate::stored::StoredConstants;
use crate::{Device, Error};

/// Constants, and where they are from.
#[derive(Clone, Debug)]
pub(super) struct UsedConstants {
    which: Which,
    source: String,
}

#[derive(Clone, Debug)]
enum Which {
    BuiltIn(Constants),
    Measured(Arc<MeasuredConstants>),
}

/// Where the constants are from that plans of a device go by, in words; none on the CPU executor, of whose times nothing is known.
///
/// # Errors
/// [`Error::Constants`] if certain ones are to be used, and do not hold for the device.
pub fn source_of_constants(device: &Device, choice: &ConstantsChoice) -> Result<Option<String>, Error> {
    let used = UsedConstants::on(device, choice)?;
    Ok((!device.is_cpu()).then_some(used.source))
}

impl UsedConstants {
    /// Those for a device.
    ///
    /// # Errors
    /// [`Error::Constants`] if certain ones are to be used, and do not hold for the device.
    pub(super) fn on(device: &Device, choice: &ConstantsChoice) -> Result<Self, Error> {
        match choice {
            ConstantsChoice::Stored => match device.stored_constants() {
                StoredConstants::These(measured) => Ok(Self::measured(measured.clone())),
                stored @ (StoredConstants::None | StoredConstants::Refused { .. }) => {
                    Ok(Self::built_in(&DeviceFacts::of(device), stored.refusal()))
                }
            },
            ConstantsChoice::BuiltIn => Ok(Self::built_in(&DeviceFacts::of(device), None)),
            ConstantsChoice::This(measured) => match device.measured_on() {
                Some(here) => Self::checked(measured, &here),
                // The executor is asked for times by nobody.
                None => Ok(Self::built_in(&DeviceFacts::of(device), None)),
            },
        }
    }

    /// Those for a device that need not be there: for its kernels are taken whatever constants were measured with.
    ///
    /// # Errors
    /// As for [`UsedConstants::on`].
    pub(super) fn without_device(device: &DeviceFacts, choice: &ConstantsChoice) -> Result<Self, Error> {
        match (choice, device.processor) {
            (ConstantsChoice::This(measured), Processor::Gpu { compute_capability, .. }) => {
                let (gpu, multiprocessors) = (device.name.clone(), device.multiprocessors);
                let kernels_digest = measured.on.kernels_digest.clone();
                Self::checked(measured, &MeasuredOn { gpu, compute_capability, multiprocessors, kernels_digest })
            }
            _ => Ok(Self::built_in(device, None)),
        }
    }

    fn checked(measured: &Arc<MeasuredConstants>, here: &MeasuredOn) -> Result<Self, Error> {
        let refused = |fault| Error::Constants { path: measured.path.clone(), fault: Box::new(fault) };
        measured.check(here).map_err(refused)?;
        Ok(Self::measured(measured.clone()))
    }

    fn measured(measured: Arc<MeasuredConstants>) -> Self {
        Self { source: measured.source(), which: Which::Measured(measured) }
    }

    fn built_in(device: &DeviceFacts, refusal: Option<String>) -> Self {
        let refusal = refusal.map(|refusal| format!("; {refusal}")).unwrap_or_default();
        Self { which: Which::BuiltIn(model::built_in(device)), source: format!("built in, fitted to an H200{refusal}") }
    }

    /// The constants.
    pub(super) fn constants(&self) -> &Constants {
        match &self.which {
            Which::BuiltIn(constants) => constants,
            Which::Measured(measured) => &measured.constants,
        }
    }

    /// Where they are from, in words.
    pub(super) fn source(&self) -> &str {
        &self.source
    }
}
