//! The context of a session file as an import keeps it: which elements of the transcript it is made of, and the messages
//! that are not among them.

use super::error::QError;
use super::message::{Message, Version};
use super::object::{Fields, Json, Object, Place, Text};

/// A context in terms of its transcript. It is small, and with the transcript it gives the context back exactly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptContext {
    /// The form of the messages.
    pub version: Version,
    /// How many elements the transcript had.
    pub transcript: u64,
    /// What the context is made of, in its order.
    pub pieces: Vec<Piece>,
}

/// A piece of a context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Elements `first` to `last` of the transcript, from 0, both included.
    Elements(u64, u64),
    /// A message that is not in the transcript, as JSON.
    Message(String),
}

impl KeptContext {
    /// The context that is the whole transcript.
    #[must_use]
    pub fn whole(version: Version, transcript: u64) -> Self {
        let last = transcript.checked_sub(1);
        Self { version, transcript, pieces: last.map(|last| Piece::Elements(0, last)).into_iter().collect() }
    }

    /// The context once the transcript has grown to `transcript` elements, and the context by the same ones.
    #[must_use]
    pub fn grown(&self, transcript: u64) -> Self {
        let mut grown = Self { transcript, ..self.clone() };
        for element in self.transcript..transcript {
            grown.push_element(element);
        }
        grown
    }

    /// Adds an element of the transcript.
    pub fn push_element(&mut self, element: u64) {
        match self.pieces.last_mut() {
            Some(Piece::Elements(_, last)) if last.checked_add(1) == Some(element) => *last = element,
            _ => self.pieces.push(Piece::Elements(element, element)),
        }
    }

    /// Adds a message that is not in the transcript.
    ///
    /// # Errors
    /// If it is no JSON object.
    pub fn push_message(&mut self, json: &[u8], place: &Place<'_>) -> Result<(), QError> {
        let object = Object::read(json, place)?;
        let json = object.json().map(|json| json.get().to_owned());
        self.pieces.extend(json.map(Piece::Message));
        Ok(())
    }

    /// The element of the transcript at each place of the context; `None` for a message that is not in it.
    #[must_use]
    pub fn places(&self) -> Vec<Option<u64>> {
        let mut places = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Elements(first, last) => places.extend((*first..=*last).map(Some)),
                Piece::Message(_) => places.push(None),
            }
        }
        places
    }

    /// Reads what [`to_json`](Self::to_json) gave.
    ///
    /// # Errors
    /// If it is something else.
    pub fn parse(bytes: &[u8]) -> Result<Self, QError> {
        let place = Place::top("the kept context");
        let object = Object::read(bytes, &place)?;
        let fields = Fields { object: &object, place: &place };
        let version = fields.number("version")?.and_then(Version::of);
        let Some(version) = version else {
            return Err(super::session::unsupported(&object, Version::KNOWN, &place));
        };
        let transcript = fields.number("transcript")?.unwrap_or_default();
        let place = place.below("context");
        let piece = |piece: &Json| {
            piece_of(piece).ok_or_else(|| place.wrong("a pair of numbers or a message", piece))
        };
        let pieces = fields.list("context")?.iter().map(piece).collect::<Result<_, _>>()?;
        Ok(Self { version, transcript, pieces })
    }

    /// The record of it.
    #[must_use]
    pub fn to_json(&self) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Elements(first, last) => format!("[{first},{last}]"),
            Piece::Message(json) => json.clone(),
        };
        let pieces: Vec<String> = self.pieces.iter().map(piece).collect();
        Text::new()
            .put("version", &self.version.number())
            .put("transcript", &self.transcript)
            .written("context", &format!("[{}]", pieces.join(",")))
            .end()
    }

    /// The message of a piece, if it is one that can be read.
    #[must_use]
    pub fn message(&self, json: &str) -> Option<Message> {
        Message::parse(json.as_bytes(), self.version, &Place::top("the kept context")).ok()
    }
}

fn piece_of(piece: &Json) -> Option<Piece> {
    if piece.object().is_some() {
        return Some(Piece::Message(piece.get().to_owned()));
    }
    let (first, last): (u64, u64) = serde_json::from_str(piece.get()).ok()?;
    (first <= last).then_some(Piece::Elements(first, last))
}
