//! What the fake models say: for each conversation, the calls of each answer.

use std::collections::BTreeMap;

use sessionlog_codec::event::{AgentKind, Effect};

/// One call of an answer.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// A tool, and the name of what it does to the world.
    Tool(Effect, String),
    /// A delegation; its request names the child's script.
    Delegate(AgentKind, String),
}

/// The answers of one conversation, before its last one. The calls of one are run at once, or one after the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    pub(crate) answers: Vec<Vec<Action>>,
}

/// The scripts by request. The root's runs are `root-0`, `root-1`, ...
#[derive(Clone, Debug, Default)]
pub(crate) struct Scripts {
    pub(crate) by_prompt: BTreeMap<String, Script>,
}

/// A small generator of numbers that are the same everywhere.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % sides.max(1)
    }
}

impl Scripts {
    /// A tree that is `depth` deep, with siblings that run at once, tools of all effects and external agents.
    pub(crate) fn tree(depth: u32, runs: usize, seed: u64) -> Self {
        let mut scripts = Self::default();
        let mut dice = Dice::new(seed);
        for run in 0..runs {
            scripts.grow(&format!("root-{run}"), depth, &mut dice);
        }
        scripts
    }

    fn grow(&mut self, prompt: &str, depth: u32, dice: &mut Dice) {
        let mut answers = Vec::new();
        for answer in 0..1 + dice.roll(2) {
            let mut actions = Vec::new();
            for index in 0..1 + dice.roll(3) {
                actions.push(tool(&format!("{prompt}/{answer}.{index}"), dice));
            }
            answers.push(actions);
        }
        if depth > 0 {
            let mut actions = vec![Action::Delegate(AgentKind::Inner, format!("{prompt}>a"))];
            self.grow(&format!("{prompt}>a"), depth - 1, dice);
            match dice.roll(4) {
                0 => actions.push(Action::Delegate(AgentKind::External, format!("{prompt}>x"))),
                1 => {
                    actions.push(Action::Delegate(AgentKind::Inner, format!("{prompt}>b")));
                    self.grow(&format!("{prompt}>b"), 0, dice);
                }
                2 => actions.insert(0, tool(&format!("{prompt}/first"), dice)),
                _ => {
                    actions.push(Action::Delegate(AgentKind::External, format!("{prompt}>x")));
                    actions.push(tool(&format!("{prompt}/last"), dice));
                }
            }
            answers.insert(dice.roll(2), actions);
        }
        self.by_prompt.insert(prompt.to_owned(), Script { answers });
    }

    pub(crate) fn put(&mut self, prompt: &str, answers: Vec<Vec<Action>>) {
        self.by_prompt.insert(prompt.to_owned(), Script { answers });
    }

    /// What each tool does, by the name of its effect.
    pub(crate) fn effects(&self) -> BTreeMap<String, Effect> {
        let actions = self.by_prompt.values().flat_map(|script| script.answers.iter().flatten());
        let tools = actions.filter_map(|action| match action {
            Action::Tool(effect, key) => Some((key.clone(), *effect)),
            Action::Delegate(..) => None,
        });
        tools.collect()
    }

    pub(crate) fn action(&self, prompt: &str, answer: usize, index: usize) -> Action {
        self.by_prompt[prompt].answers[answer][index].clone()
    }

    /// The calls of an answer; `None`: it is the last one.
    pub(crate) fn answer(&self, prompt: &str, answer: usize) -> Option<&[Action]> {
        self.by_prompt[prompt].answers.get(answer).map(Vec::as_slice)
    }
}

fn tool(key: &str, dice: &mut Dice) -> Action {
    let effect = [Effect::Pure, Effect::Mutating, Effect::Idempotent, Effect::External][dice.roll(4)];
    Action::Tool(effect, key.to_owned())
}
