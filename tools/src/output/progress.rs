//! How far long work is, for people: on standard error, and only where that is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{Context, Format};

/// A bar for work on so many bytes.
#[must_use]
pub fn progress_bar(bytes: u64, context: &Context) -> ProgressBar {
    let target = match context.format() {
        Format::Human => ProgressDrawTarget::stderr(),
        Format::Json => ProgressDrawTarget::hidden(),
    };
    let bar = ProgressBar::with_draw_target(Some(bytes), target);
    let style = ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes} {eta} {wide_msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
