//! What became of a context in a request, in the words that machines keep.

use super::{Adjustment, What, Why};

impl What {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::Text => "text",
            Self::Reasoning => "reasoning",
            Self::Image => "image",
            Self::File => "file",
            Self::Block => "block",
            Self::ReplayItems => "replay_items",
            Self::Name => "name",
            Self::Phase => "phase",
            Self::ErrorFlag => "error_flag",
        }
    }
}

impl Why {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::OtherModel => "other_model",
            Self::OtherApi => "other_api",
            Self::NoPlace => "no_place",
            Self::NoSignature => "no_signature",
            Self::NotTogether => "not_together",
            Self::Malformed => "malformed",
            Self::CallsDiffer => "calls_differ",
            Self::Repeated => "repeated",
        }
    }
}

impl Adjustment {
    /// The word for it.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::IdReplaced { .. } => "id_replaced",
            Self::NameReplaced { .. } => "name_replaced",
            Self::ArgumentsWrapped => "arguments_wrapped",
            Self::ArgumentsFilled => "arguments_filled",
            Self::ArgumentsDecoded => "arguments_decoded",
            Self::UserInserted => "user_inserted",
            Self::MovedBehindResults => "moved_behind_results",
            Self::InstructionAsUser => "instruction_as_user",
            Self::EndTrimmed => "end_trimmed",
            Self::ArtifactAsText => "artifact_as_text",
            Self::RefusalAsText => "refusal_as_text",
        }
    }
}
