//! The questions that were put to a person, and their answers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sessionlog_codec::event::{Event, LoggedEvent, QuestionAnswered, QuestionAsked};
use sessionlog_codec::ids::NodeId;

use crate::Projection;

/// Every question of a session tree by its id. Derives from `question.asked` and `question.answered`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Questions {
    asked: BTreeMap<String, Question>,
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// Whose it is.
    pub node: NodeId,
    /// As it was asked.
    pub asked: QuestionAsked,
    /// The first answer; `None`: it waits for one.
    pub answer: Option<QuestionAnswered>,
}

impl Questions {
    /// The question of an id: the first one, where a log has two.
    #[must_use]
    pub fn get(&self, question_id: &str) -> Option<&Question> {
        self.asked.get(question_id)
    }

    /// Those that wait for their answer, by id.
    pub fn waiting(&self) -> impl Iterator<Item = &Question> {
        self.asked.values().filter(|question| question.answer.is_none())
    }
}

impl Projection for Questions {
    fn apply(&mut self, logged: &LoggedEvent) {
        match &logged.event {
            Event::QuestionAsked(asked) => {
                let question = Question { node: logged.node, asked: asked.clone(), answer: None };
                self.asked.entry(asked.question_id.clone()).or_insert(question);
            }
            Event::QuestionAnswered(answered) => {
                if let Some(question) = self.asked.get_mut(&answered.question_id) {
                    question.answer.get_or_insert_with(|| answered.clone());
                }
            }
            _ => {}
        }
    }
}
