//! The tree of a Claude Code conversation, as far as it tells real branches from fake ones.
//!
//! Each line names the line before it. Parallel tool calls make forks of that chain that mean nothing: a fork is a
//! real branch only where two siblings are both prompts, or both answers of different responses.

use std::collections::HashMap;

use sessionlog_codec::event::{HeadReason, MessageRange};
use sessionlog_codec::ids::MessageNo;

use super::loose::Key;
use super::mapper::Anchor;

/// A line of the tree: the root, or one that said something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Token(u32);

const ROOT: Token = Token(0);

#[derive(Clone, Copy, Debug, Default)]
struct Line {
    parent: Option<Token>,
    anchor: Anchor,
    message: Option<MessageNo>,
    has_prompt: bool,
    has_answer: bool,
}

/// What a uuid stands for.
#[derive(Clone, Copy, Debug)]
enum Stand {
    /// A line that says something.
    Said(Token),
    /// A line that says nothing: its children follow what it follows.
    Follows(Token),
}

impl Stand {
    fn token(self) -> Token {
        match self {
            Self::Said(token) | Self::Follows(token) => token,
        }
    }
}

/// What a line is to its siblings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sibling {
    /// The user speaks.
    Prompt,
    /// A response begins.
    Answer,
    /// A tool result, a later piece of a response, a summary: never a branch.
    Other,
}

/// Where a line goes in the tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place(Token);

/// A real branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Branch {
    pub(crate) to: Anchor,
    pub(crate) from: Anchor,
    pub(crate) reason: HeadReason,
}

#[derive(Debug)]
pub(crate) struct Tree {
    /// Lines by uuid.
    places: HashMap<Key, Stand>,
    lines: Vec<Line>,
    /// The last line of the conversation as it stands.
    end: Token,
    /// The last message or compaction of it.
    head: Anchor,
    /// What compactions kept.
    compactions: HashMap<Token, Vec<MessageRange>>,
    /// The messages that the model is shown, besides a summary.
    live: Vec<MessageRange>,
    /// Whether lines of this file name their parents at all. (Hand-made ones and some converters leave them null.)
    has_chain: bool,
}

impl Tree {
    pub(crate) fn new() -> Self {
        Self {
            places: HashMap::new(),
            lines: vec![Line::default()],
            end: ROOT,
            head: Anchor::default(),
            compactions: HashMap::new(),
            live: Vec::new(),
            has_chain: false,
        }
    }

    /// Whether a line is known.
    pub(crate) fn contains(&self, uuid: &str) -> bool {
        self.places.contains_key(&Key::of(uuid))
    }

    /// Whether a line is known and said something.
    pub(crate) fn has_said(&self, uuid: &str) -> bool {
        matches!(self.places.get(&Key::of(uuid)), Some(Stand::Said(_)))
    }

    fn token(&self, uuid: &str) -> Option<Token> {
        self.places.get(&Key::of(uuid)).map(|stand| stand.token())
    }

    /// The message that a line belongs to.
    pub(crate) fn message(&self, uuid: &str) -> Option<MessageNo> {
        self.line(self.token(uuid)?)?.message
    }

    fn line(&self, token: Token) -> Option<&Line> {
        self.lines.get(usize::try_from(token.0).ok()?)
    }

    /// A line that says nothing: its children follow whatever it follows.
    pub(crate) fn link(&mut self, uuid: Option<&str>, parent: Option<&str>) {
        let Some(uuid) = uuid else { return };
        let token = match parent {
            None => ROOT,
            Some(parent) => self.token(parent).unwrap_or(self.end),
        };
        self.places.entry(Key::of(uuid)).or_insert(Stand::Follows(token));
    }

    /// A line that says nothing and names no parent although it follows all that came before it.
    pub(crate) fn link_to_end(&mut self, uuid: Option<&str>) {
        if let Some(uuid) = uuid {
            self.places.entry(Key::of(uuid)).or_insert(Stand::Follows(self.end));
        }
    }

    /// Finds the place of a line that says something, and whether the conversation branches there.
    pub(crate) fn enter(&mut self, parent: Option<&str>, sibling: Sibling) -> (Place, Option<Branch>) {
        let known = match parent {
            None => Some(ROOT),
            Some(parent) => self.token(parent),
        };
        let Some(parent) = known else { return (Place(self.end), None) };
        self.has_chain |= parent != ROOT;
        let index = usize::try_from(parent.0).unwrap_or(usize::MAX);
        let Some(line) = self.lines.get_mut(index) else { return (Place(self.end), None) };
        let seen = match sibling {
            Sibling::Prompt => std::mem::replace(&mut line.has_prompt, true),
            Sibling::Answer => std::mem::replace(&mut line.has_answer, true),
            Sibling::Other => false,
        };
        let to = line.anchor;
        let is_real = seen && to != self.head;
        // Answers without a parent come from files that name none.
        let is_real = is_real && (parent != ROOT || (sibling == Sibling::Prompt && self.has_chain));
        if !is_real {
            return (Place(if parent == ROOT { self.end } else { parent }), None);
        }
        let reason = if self.is_on_chain(parent) { HeadReason::Rewind } else { HeadReason::Branch };
        let branch = Branch { to, from: self.head, reason };
        self.end = parent;
        self.head = to;
        self.live = self.live_at(parent);
        (Place(parent), Some(branch))
    }

    /// Adds a line that begins a message.
    pub(crate) fn add_message(&mut self, uuid: Option<&str>, place: Place, message: (MessageNo, Anchor)) {
        let (message_no, anchor) = message;
        self.add(uuid, place, anchor, Some(message_no));
        self.head = anchor;
        add_to_ranges(&mut self.live, message_no);
    }

    /// Adds a line that belongs to a message which is there already: a later piece of it, or a result. The message may
    /// be far back, or on a branch that was left, so the head stays.
    pub(crate) fn add_piece(&mut self, uuid: Option<&str>, place: Place, message: (MessageNo, Anchor)) {
        self.add(uuid, place, message.1, Some(message.0));
    }

    /// Adds a line that is a message which no model is shown: a result without its call, or the client's own words. A
    /// conversation can't go on from that, so the head stays, and what follows the line goes on from where the line does.
    /// Gives that place.
    pub(crate) fn add_aside(&mut self, uuid: Option<&str>, place: Place, message_no: MessageNo) -> Anchor {
        let anchor = self.line(place.0).map(|line| line.anchor).unwrap_or_default();
        self.add(uuid, place, anchor, Some(message_no));
        add_to_ranges(&mut self.live, message_no);
        anchor
    }

    fn add(&mut self, uuid: Option<&str>, place: Place, anchor: Anchor, message: Option<MessageNo>) {
        let Ok(token) = u32::try_from(self.lines.len()).map(Token) else { return };
        self.lines.push(Line { parent: Some(place.0), anchor, message, ..Line::default() });
        if let Some(uuid) = uuid {
            self.places.insert(Key::of(uuid), Stand::Said(token));
        }
        self.end = token;
    }

    /// Adds a compaction that keeps `kept`, and gives the messages that its summary stands for.
    pub(crate) fn compact(
        &mut self,
        uuid: Option<&str>,
        anchor: Anchor,
        kept: &[MessageRange],
    ) -> Vec<MessageRange> {
        let replaced = without(&self.live, kept);
        let place = Place(self.end);
        self.add(uuid, place, anchor, None);
        self.head = anchor;
        self.compactions.insert(self.end, kept.to_vec());
        self.live = kept.to_vec();
        replaced
    }

    fn chain(&self, from: Token) -> impl Iterator<Item = Token> {
        std::iter::successors(Some(from), |token| self.line(*token)?.parent)
    }

    fn is_on_chain(&self, token: Token) -> bool {
        self.chain(self.end).any(|on_chain| on_chain == token)
    }

    fn live_at(&self, end: Token) -> Vec<MessageRange> {
        let mut messages = Vec::new();
        let mut live = Vec::new();
        for token in self.chain(end) {
            if let Some(kept) = self.compactions.get(&token) {
                live.clone_from(kept);
                break;
            }
            messages.extend(self.line(token).and_then(|line| line.message));
        }
        messages.sort_unstable();
        for message in messages {
            add_to_ranges(&mut live, message);
        }
        live
    }
}

/// Adds a message to ascending ranges, unless it is in them.
pub(crate) fn add_to_ranges(ranges: &mut Vec<MessageRange>, message: MessageNo) {
    match ranges.last_mut() {
        Some(range) if message <= range.last => {}
        Some(range) if range.last.next() == Some(message) => range.last = message,
        _ => ranges.push(MessageRange { first: message, last: message }),
    }
}

fn without(ranges: &[MessageRange], kept: &[MessageRange]) -> Vec<MessageRange> {
    let mut left = Vec::new();
    for range in ranges {
        let mut first = range.first;
        for cut in kept.iter().filter(|cut| cut.last >= range.first && cut.first <= range.last) {
            if cut.first > first {
                left.push(MessageRange { first, last: MessageNo(cut.first.0.saturating_sub(1)) });
            }
            first = first.max(MessageNo(cut.last.0.saturating_add(1)));
        }
        if first <= range.last {
            left.push(MessageRange { first, last: range.last });
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds lines `(uuid, parent, sibling)`, each a message of its own, and gives the branches by their line.
    fn grow(lines: &[(&str, Option<&str>, Sibling)]) -> (Tree, Vec<(String, Branch)>) {
        let mut tree = Tree::new();
        let mut branches = Vec::new();
        for (number, (uuid, parent, sibling)) in (1..).zip(lines) {
            let (place, branch) = tree.enter(*parent, *sibling);
            branches.extend(branch.map(|branch| ((*uuid).to_owned(), branch)));
            tree.add_message(Some(uuid), place, (MessageNo(number), Anchor(number)));
        }
        (tree, branches)
    }

    fn range(first: u64, last: u64) -> MessageRange {
        MessageRange { first: MessageNo(first), last: MessageNo(last) }
    }

    #[test]
    fn a_second_prompt_with_the_same_parent_is_a_branch() {
        use Sibling::{Answer, Prompt};
        let (tree, branches) = grow(&[
            ("u1", None, Prompt),
            ("a1", Some("u1"), Answer),
            ("u2", Some("a1"), Prompt),
            ("a2", Some("u2"), Answer),
            ("u3", Some("a1"), Prompt),
            ("a3", Some("u3"), Answer),
            ("u4", Some("a2"), Prompt),
            ("u5", Some("u3"), Prompt),
        ]);
        let of = |to, from, reason| Branch { to: Anchor(to), from: Anchor(from), reason };
        assert_eq!(branches, [("u3".to_owned(), of(2, 4, HeadReason::Rewind))]);
        // u4 follows a line off the chain without a sibling: that is taken for a cut, not for a branch.
        assert_eq!(tree.live, [range(1, 2), range(5, 8)]);
    }

    #[test]
    fn another_branch_is_told_from_a_rewind() {
        use Sibling::{Answer, Prompt};
        let (tree, branches) = grow(&[
            ("u1", None, Prompt),
            ("a1", Some("u1"), Answer),
            ("u2", Some("a1"), Prompt),
            ("a2", Some("u2"), Answer),
            ("u3", Some("a2"), Prompt),
            ("u2b", Some("a1"), Prompt),
            ("u3b", Some("a2"), Prompt),
        ]);
        assert_eq!(
            branches.iter().map(|(_, branch)| branch.reason).collect::<Vec<_>>(),
            [HeadReason::Rewind, HeadReason::Branch]
        );
        assert_eq!(tree.live, [range(1, 4), range(7, 7)]);
    }

    #[test]
    fn parallel_calls_and_missing_parents_are_no_branches() {
        use Sibling::{Answer, Other, Prompt};
        let (_, branches) = grow(&[
            ("u1", None, Prompt),
            ("a1", Some("u1"), Answer),
            ("a1b", Some("a1"), Other),
            ("r1", Some("a1"), Other),
            ("r2", Some("a1b"), Other),
            ("a2", Some("r2"), Answer),
            ("u2", Some("gone"), Prompt),
            ("u3", Some("gone"), Prompt),
        ]);
        assert_eq!(branches, []);
        let (_, branches) = grow(&[("u1", None, Prompt), ("a1", None, Answer), ("u2", None, Prompt)]);
        assert_eq!(branches, [], "a file that names no parents");
    }

    #[test]
    fn a_prompt_at_the_root_is_a_branch_where_lines_name_their_parents() {
        use Sibling::{Answer, Prompt};
        let (tree, branches) =
            grow(&[("u1", None, Prompt), ("a1", Some("u1"), Answer), ("u2", None, Prompt)]);
        assert_eq!(branches.len(), 1);
        assert_eq!(branches[0].1.to, Anchor(0));
        assert_eq!(tree.live, [range(3, 3)]);
    }

    #[test]
    fn a_compaction_replaces_what_it_does_not_keep() {
        let (mut tree, _) = grow(&[("u1", None, Sibling::Prompt)]);
        for number in 2..=6 {
            let (place, _) = tree.enter(None, Sibling::Other);
            tree.add_message(None, place, (MessageNo(number), Anchor(number)));
        }
        let kept = [range(2, 2), range(5, 6)];
        assert_eq!(tree.compact(Some("s"), Anchor(7), &kept), [range(1, 1), range(3, 4)]);
        assert_eq!(tree.live, kept);
        assert_eq!(tree.compact(Some("t"), Anchor(8), &[]), kept);
    }
}
