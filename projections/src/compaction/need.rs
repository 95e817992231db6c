//! Whether a context has to shrink.

use super::calibration::NodeCalibration;
use super::estimate::Predicted;
use super::policy::Policy;
use crate::context::ContextMessage;

/// Whether compaction is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The context still fits.
    NotYet {
        /// The predicted prompt.
        predicted: Predicted,
        /// From how many predicted tokens on it is due.
        trigger: u64,
    },
    /// The context is about to outgrow the window.
    Due {
        /// The predicted prompt.
        predicted: Predicted,
        /// From how many predicted tokens on it is due.
        trigger: u64,
    },
    /// Nobody knows how much fits, so nothing is compacted automatically.
    UnknownWindow {
        /// The predicted prompt.
        predicted: Predicted,
    },
}

/// Whether compaction is due before `context` is sent to a model with a window of `window` tokens. 0 is what gateways
/// say that do not know: unknown.
#[must_use]
pub fn need(
    context: &[ContextMessage],
    calibration: &NodeCalibration,
    window: Option<u64>,
    policy: &Policy,
) -> Need {
    let predicted = calibration.predict(context);
    let Some(window) = window.filter(|window| *window > 0) else { return Need::UnknownWindow { predicted } };
    let trigger = policy.trigger.at_least(window);
    if predicted.total >= trigger {
        Need::Due { predicted, trigger }
    } else {
        Need::NotYet { predicted, trigger }
    }
}
