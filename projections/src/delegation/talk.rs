//! How far a conversation got: its turns, and who said the last word on its live path.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sessionlog_codec::event::{
    Event, LoggedEvent, MessageAppended, MessageExtended, Role, TurnCause, TurnEnded, TurnOutcome,
    TurnStarted,
};
use sessionlog_codec::ids::{Epoch, MessageNo, Position};

use crate::path::joins_path;
use crate::words::{Sealed, sealed};

/// The phase of an answer that is not the last one of its turn.
const COMMENTARY: &str = "commentary";

/// A conversation without its words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Talk {
    turn: Turn,
    /// Somebody let the conversation rest here: what came before is owed to nobody.
    rest: Position,
    head: Position,
    /// The records that the model was shown.
    steps: BTreeMap<Position, Step>,
    messages: BTreeMap<MessageNo, Said>,
    last_message: MessageNo,
    hosted: Hosted,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Turn {
    /// There was none, or its host ended it.
    #[default]
    Over,
    Open {
        since: Position,
        epoch: Epoch,
    },
    /// Its host died: the next owner ended it, and it is still to be gone on with.
    Broken {
        since: Position,
    },
}

/// Whether a host of ours worked in the conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Hosted {
    #[default]
    NotSeen,
    Seen,
}

/// Who appends to the session.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writer {
    Host,
    /// An importer, until a host is seen.
    Importer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Step {
    /// The head before it: always a record that was there already, so a walk upwards ends.
    before: Position,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum What {
    Message(MessageNo),
    Compaction,
    /// A new run or a reset: the model is shown nothing of what came before.
    Barrier,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Said {
    position: Position,
    speaker: Speaker,
    origin: SaidBy,
    standing: Standing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Speaker {
    /// The system or the application.
    Instruction,
    /// A person.
    Other,
    /// Nobody knows: the message is erased, or of a newer version.
    Unreadable,
    /// The model, which wants calls run, or means to go on.
    Asking,
    /// The model, and it had no more to do.
    Final,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum SaidBy {
    Host,
    Import,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Standing {
    Said,
    Withdrawn,
}

/// What a conversation waits for when nothing of it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// For nothing.
    Rests,
    /// For the results of this message's calls, then for the model.
    Calls(MessageNo),
    /// For the model.
    Model,
    /// For the end of its turn: the model has said its last.
    End,
}

impl Talk {
    /// The part that decides who waits for what: the `kept` newest steps of the live path, further back to the last word of
    /// the model, and these messages. Good until the head moves or a message is withdrawn.
    pub(crate) fn bounded(&self, kept: u64, with: impl Iterator<Item = MessageNo>) -> Self {
        let kept = usize::try_from(kept).unwrap_or(usize::MAX);
        let (mut steps, mut messages) = (BTreeMap::new(), BTreeMap::new());
        let (mut next, mut decided) = (self.head, false);
        while let Some(step) = self.steps.get(&next)
            && !(decided && steps.len() >= kept)
        {
            steps.insert(next, *step);
            if let What::Message(message_no) = step.what
                && let Some(said) = self.messages.get(&message_no)
            {
                messages.insert(message_no, *said);
                let is_word = matches!(said.speaker, Speaker::Asking | Speaker::Final);
                decided |= is_word && said.standing == Standing::Said;
            }
            if step.what == What::Barrier {
                break;
            }
            next = step.before;
        }
        messages.extend(with.filter_map(|number| Some((number, *self.messages.get(&number)?))));
        Self { steps, messages, ..*self }
    }

    /// Somebody let the conversation rest: its turn is over.
    pub(crate) fn rest(&mut self, position: Position) {
        self.turn = Turn::Over;
        self.rest = position;
    }

    pub(crate) fn knows(&self, message_no: MessageNo) -> bool {
        self.messages.contains_key(&message_no)
    }

    pub(crate) fn has_live_messages(&self) -> bool {
        self.live().next().is_some()
    }

    pub(crate) fn is_hosted(&self) -> bool {
        self.hosted == Hosted::Seen
    }

    /// Whether its turn was ended by an owner that came after the one who ran it, so that it is still to be gone on with.
    pub(crate) fn is_interrupted(&self) -> bool {
        matches!(self.turn, Turn::Broken { .. })
    }

    /// Whether the conversation still goes on from the record at `position`: no rewind, reset or new run has left it.
    pub(crate) fn goes_on_from(&self, position: Position) -> bool {
        let mut next = self.head;
        while next != position {
            match self.steps.get(&next) {
                Some(step) if step.what != What::Barrier => next = step.before,
                _ => return false,
            }
        }
        true
    }

    /// Whether a message was said to another agent than ours: nobody recorded which of its calls were started.
    pub(crate) fn is_import(&self, message_no: MessageNo) -> bool {
        self.messages.get(&message_no).is_some_and(|said| said.origin == SaidBy::Import)
    }

    /// What the session's own conversation waits for. An open turn is owed its end. Without one, whoever said the last
    /// word decides, if that was said since the conversation rested, and to a host of ours.
    pub(crate) fn root_waits(&self) -> Waits {
        match self.turn {
            Turn::Open { since, .. } => self.waits(since),
            Turn::Broken { since } => match self.waits(since) {
                // The turn has its end already.
                Waits::End => Waits::Rests,
                waits => waits,
            },
            Turn::Over => self.waits_without_turn(),
        }
    }

    /// What a child waits for that has not settled: it is one long turn.
    pub(crate) fn child_waits(&self) -> Waits {
        self.waits(Position::START)
    }

    /// The newest answer since `since` counts; what a person says while its calls run does not change who waits. A turn
    /// in which nothing was said yet goes on from the word before it.
    fn waits(&self, since: Position) -> Waits {
        let mut is_last_word = true;
        for (message_no, said) in self.live() {
            let in_turn = said.position > since;
            match said.speaker {
                Speaker::Asking if in_turn => return Waits::Calls(message_no),
                Speaker::Final if is_last_word => return Waits::End,
                Speaker::Instruction | Speaker::Other | Speaker::Unreadable if in_turn => {
                    is_last_word = false;
                }
                Speaker::Instruction => {}
                _ => return Waits::Model,
            }
        }
        if is_last_word && since != Position::START { Waits::End } else { Waits::Model }
    }

    fn waits_without_turn(&self) -> Waits {
        let last = self.live().find(|(_, said)| said.speaker != Speaker::Instruction);
        match last {
            Some((_, said)) if said.position <= self.rest || said.origin == SaidBy::Import => Waits::Rests,
            Some((message_no, Said { speaker: Speaker::Asking, .. })) => Waits::Calls(message_no),
            Some((_, Said { speaker: Speaker::Other, .. })) => Waits::Model,
            _ => Waits::Rests,
        }
    }

    /// The messages of the live path that the model is shown, newest first.
    fn live(&self) -> impl Iterator<Item = (MessageNo, &Said)> {
        let mut next = self.head;
        let steps = std::iter::from_fn(move || {
            let step = self.steps.get(&next)?;
            next = step.before;
            (step.what != What::Barrier).then_some(step.what)
        });
        let messages = steps.filter_map(|what| match what {
            What::Message(message_no) => Some((message_no, self.messages.get(&message_no)?)),
            What::Compaction | What::Barrier => None,
        });
        messages.filter(|(_, said)| said.standing == Standing::Said)
    }

    /// Folds one event of the conversation.
    pub(crate) fn apply(&mut self, logged: &LoggedEvent, epoch: Epoch, writer: Writer) {
        let position = logged.position;
        match &logged.event {
            Event::MessageAppended(message) => {
                self.append(position, message, writer);
                if joins_path(&logged.event) {
                    self.push(position, What::Message(message.message_no));
                }
            }
            Event::MessageExtended(extended) => self.extend(extended),
            Event::MessageWithdrawn(withdrawn) => {
                if let Some(said) = self.messages.get_mut(&withdrawn.message_no) {
                    said.standing = Standing::Withdrawn;
                    self.rest = position;
                }
            }
            Event::TurnStarted(started) => self.start(position, epoch, started),
            Event::TurnEnded(ended) => self.end(position, epoch, ended),
            Event::CallStarted(_) | Event::NodeBound(_) => self.hosted = Hosted::Seen,
            Event::ContextCompacted(_) => self.push(position, What::Compaction),
            Event::ContextReset(_) | Event::RunStarted(_) => self.push(position, What::Barrier),
            Event::HeadMoved(moved) if moved.to == Position::START || self.steps.contains_key(&moved.to) => {
                self.head = moved.to;
                self.rest = position;
            }
            other if sealed(other) == Some(Sealed::Message) => self.append_sealed(position),
            _ => {}
        }
    }

    fn push(&mut self, position: Position, what: What) {
        // No log has a record there, and as its own parent it would never end a walk.
        if position == Position::START {
            return;
        }
        // Two records at one position are possible in garbage only; the first one keeps its place.
        self.steps.entry(position).or_insert(Step { before: self.head, what });
        self.head = position;
    }

    fn append(&mut self, position: Position, message: &MessageAppended, writer: Writer) {
        self.last_message = self.last_message.max(message.message_no);
        let speaker = match message.role {
            Role::System | Role::Developer => Speaker::Instruction,
            Role::User | Role::Tool => Speaker::Other,
            Role::Assistant if !message.tool_calls.is_empty() => Speaker::Asking,
            Role::Assistant if message.phase.as_deref() == Some(COMMENTARY) => Speaker::Asking,
            Role::Assistant => Speaker::Final,
        };
        let by_import = writer == Writer::Importer && self.hosted == Hosted::NotSeen;
        let origin = if by_import || message.source.is_some() { SaidBy::Import } else { SaidBy::Host };
        let said = Said { position, speaker, origin, standing: Standing::Said };
        self.messages.entry(message.message_no).or_insert(said);
    }

    /// Numbers are dense, so a message that can't be read is the next one.
    fn append_sealed(&mut self, position: Position) {
        let number = self.last_message.next().unwrap_or(self.last_message);
        self.last_message = number;
        let (speaker, origin) = (Speaker::Unreadable, SaidBy::Host);
        let said = Said { position, speaker, origin, standing: Standing::Said };
        self.messages.entry(number).or_insert(said);
        self.push(position, What::Message(number));
    }

    fn extend(&mut self, extended: &MessageExtended) {
        let said = self.messages.get_mut(&extended.message_no);
        if let Some(said) = said.filter(|said| said.speaker == Speaker::Final)
            && !extended.tool_calls.is_empty()
        {
            said.speaker = Speaker::Asking;
        }
    }

    fn start(&mut self, position: Position, epoch: Epoch, started: &TurnStarted) {
        self.hosted = Hosted::Seen;
        let since = match (self.turn, started.cause) {
            (Turn::Broken { since }, TurnCause::Recovery) => since,
            _ => position,
        };
        self.turn = Turn::Open { since, epoch };
    }

    /// A turn that a later owner ends as interrupted is one whose host died; one that its own host ends is over.
    fn end(&mut self, position: Position, now: Epoch, ended: &TurnEnded) {
        match self.turn {
            Turn::Open { since, epoch } if ended.outcome == TurnOutcome::Interrupted && epoch < now => {
                self.turn = Turn::Broken { since };
            }
            Turn::Open { .. } => self.rest(position),
            Turn::Broken { .. } | Turn::Over => {}
        }
    }
}
