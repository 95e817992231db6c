//! Sessions of a coding agent, made from a seed: the same messages for every peer.

use serde::{Deserialize, Serialize};

/// One message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Message {
    pub(crate) id: String,
    /// In milliseconds.
    pub(crate) at: u64,
    pub(crate) body: Body,
}

/// What it says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Body {
    User { text: String },
    Assistant { text: String, calls: Vec<Call> },
    Result { call_id: String, text: String },
}

/// A tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
}

/// Messages in a turn, as [`session`] makes them: a prompt, an answer that calls a tool, its result, an answer.
pub(crate) const TURN: usize = 4;

/// A generator of numbers that look random enough for lengths and words (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// The length of a tool's result: half are below 1.5 kB, one in twenty is over 20 kB, one in a hundred over 100 kB.
    fn result_len(&mut self) -> usize {
        let (low, high) = match self.below(100) {
            0 => (100_000, 130_000),
            1..=4 => (20_000, 100_000),
            5..=49 => (1_500, 20_000),
            _ => (50, 1_500),
        };
        // The shorter of two: in each class, short ones are more common.
        let span = high - low;
        usize::try_from(low + self.below(span).min(self.below(span)).min(self.below(span))).unwrap_or(0)
    }
}

const WORDS: [&str; 32] = [
    "the",
    "session",
    "fn",
    "let",
    "=",
    "{",
    "}",
    "error",
    "of",
    "a",
    "to",
    "self.state",
    "return",
    "file",
    "line",
    "test",
    "ok",
    "in",
    "src/main.rs",
    "and",
    "was",
    "0",
    "1",
    "=>",
    "cargo",
    "build",
    "expected",
    "found",
    "not",
    "when",
    "log",
    "->",
];

fn text(random: &mut Random, len: usize) -> String {
    let mut text = String::with_capacity(len + 16);
    while text.len() < len {
        let roll = random.next();
        text.push_str(WORDS[usize::try_from(roll % 32).unwrap_or(0)]);
        text.push(if roll >> 60 == 0 { '\n' } else { ' ' });
        if roll & 0xf00 == 0 {
            text.push_str(&format!("{:x}", roll >> 40));
        }
    }
    text.truncate(len);
    text
}

/// The messages of one session.
pub(crate) fn session(seed: u64, messages: usize) -> Vec<Message> {
    let mut random = Random(seed);
    let mut at = 1_764_500_000_000;
    (0..messages)
        .map(|number| {
            at += 200 + random.below(20_000);
            let turn = number / TURN;
            let body = match number % TURN {
                0 => Body::User { text: text_of_len(&mut random, 100, 2_000) },
                1 => {
                    let arguments = text_of_len(&mut random, 20, 500);
                    let arguments = format!(r#"{{"path":"src/lib.rs","text":{arguments:?}}}"#);
                    let call = Call { id: format!("call_{seed}_{turn}"), name: "edit".to_owned(), arguments };
                    Body::Assistant { text: text_of_len(&mut random, 50, 1_500), calls: vec![call] }
                }
                2 => {
                    let len = random.result_len();
                    Body::Result { call_id: format!("call_{seed}_{turn}"), text: text(&mut random, len) }
                }
                _ => Body::Assistant { text: text_of_len(&mut random, 100, 3_000), calls: Vec::new() },
            };
            Message { id: format!("msg_{seed:x}_{number:x}"), at, body }
        })
        .collect()
}

fn text_of_len(random: &mut Random, low: u64, high: u64) -> String {
    let len = low + random.below(high - low);
    text(random, usize::try_from(len).unwrap_or(0))
}

/// A message as the bytes that the stores of bytes hold, and in which the limit is counted.
pub(crate) fn encode(message: &Message) -> crate::Result<Vec<u8>> {
    Ok(bincode::serde::encode_to_vec(message, bincode::config::legacy())?)
}

/// The message of such bytes.
pub(crate) fn decode(bytes: &[u8]) -> crate::Result<Message> {
    Ok(bincode::serde::decode_from_slice(bytes, bincode::config::legacy())?.0)
}
