//! Views: renderings of the projections for other programs and for people. Strings out, nothing else.
//!
//! A view is derived. Delete it, and it is made again, byte for byte, from the log.

mod cost;
mod dialect;
mod event_line;
mod json;
mod markdown;
mod message_json;
mod meta;
mod pieces;
pub mod q;
mod recursive;
mod renderer;
mod seed;
mod text;

pub use cost::cost;
pub use dialect::{Dialect, UnknownDialect};
pub use event_line::{event_json, event_line};
pub use markdown::{markdown, write_markdown};
pub use message_json::{context_message_json, parts_json, transcript_entry_json};
pub use meta::{MetaExtra, meta, session_id_of};
pub use pieces::Pieces;
pub use renderer::{Rendered, TranscriptRenderer, render_all, render_node};
