//! The vocabulary, a third time: how each type is made for tests, how its bytes are spelled, what `FORMAT.md` calls it.
//! The compiler compares the field lists with the structs, the golden tests compare the bytes with the codec's.

use std::collections::VecDeque;

use sessionlog_codec::RawBytes;
use sessionlog_codec::event::*;
use sessionlog_codec::ids::*;
use sessionlog_codec::registry::kind;

/// Makes values, by a recipe.
pub(crate) struct Gen {
    recipe: Recipe,
    /// Values made so far, so that no two numbers of one event are equal and swapped fields show.
    count: u64,
    /// The enum variant to take next, set while a list goes through all of them.
    variant: Option<usize>,
    /// Enum variants taken without being told which.
    picks: usize,
}

enum Recipe {
    Min,
    Typical,
    Max,
    /// Whatever these bytes say: proptest draws and shrinks them.
    Drawn(VecDeque<u8>),
}

impl Gen {
    fn new(recipe: Recipe) -> Self {
        Self { recipe, count: 0, variant: None, picks: 0 }
    }

    pub(crate) fn min() -> Self {
        Self::new(Recipe::Min)
    }

    pub(crate) fn typical() -> Self {
        Self::new(Recipe::Typical)
    }

    pub(crate) fn max() -> Self {
        Self::new(Recipe::Max)
    }

    pub(crate) fn drawn(bytes: &[u8]) -> Self {
        Self::new(Recipe::Drawn(bytes.iter().copied().collect()))
    }

    fn next(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    fn draw<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        if let Recipe::Drawn(source) = &mut self.recipe {
            bytes.fill_with(|| source.pop_front().unwrap_or(0));
        }
        bytes
    }

    /// A number. Drawn ones are small as often as large.
    fn number(&mut self, max: u64) -> u64 {
        let n = self.next();
        match self.recipe {
            Recipe::Min => 0,
            Recipe::Typical => n,
            Recipe::Max => max - n,
            Recipe::Drawn(_) => match self.draw::<1>() {
                [wide] if wide >= 0x80 => u64::from_le_bytes(self.draw()) & max,
                [small] => u64::from(small),
            },
        }
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let n = (self.next() % 251) as u8;
        match self.recipe {
            Recipe::Min => [0; N],
            Recipe::Typical => std::array::from_fn(|i| n.wrapping_add(i as u8)),
            Recipe::Max => std::array::from_fn(|i| 0xff_u8.wrapping_sub(n).wrapping_sub(i as u8)),
            Recipe::Drawn(_) => self.draw(),
        }
    }

    fn text(&mut self, field: &str) -> String {
        let n = self.next();
        match self.recipe {
            Recipe::Min => String::new(),
            Recipe::Typical => typical(field).to_owned(),
            Recipe::Max => format!("{field} {n}\0\"\\\r\n\u{2028}\u{e9}\u{1f980}\u{10ffff}"),
            Recipe::Drawn(_) => {
                let [len] = self.draw();
                (0..len % 24)
                    .map(|_| char::from_u32(self.number(0x10_ffff) as u32).unwrap_or('\u{fffd}'))
                    .collect()
            }
        }
    }

    fn raw(&mut self, field: &str) -> Vec<u8> {
        let n = self.next();
        match self.recipe {
            Recipe::Min => Vec::new(),
            Recipe::Typical => match field {
                "arguments" => r#"{"path":"src/lib.rs"}"#.into(),
                "workspace" => typical(field).into(),
                "bytes" => r#"{"type":"user"}"#.into(),
                _ => br#"{"n":1}"#.to_vec(),
            },
            Recipe::Max => [b"\xff\xfe\0{\"".as_slice(), field.as_bytes(), n.to_string().as_bytes()].concat(),
            Recipe::Drawn(_) => {
                let [len] = self.draw();
                (0..len).map(|_| self.draw::<1>()[0]).collect()
            }
        }
    }

    fn is_set(&mut self, field: &str) -> bool {
        match self.recipe {
            Recipe::Min => false,
            Recipe::Typical => !ABSENT_TYPICALLY.contains(&field),
            Recipe::Max => true,
            Recipe::Drawn(_) => self.draw::<1>()[0] & 1 == 1,
        }
    }

    /// How many elements a list has; a list of an enum that carries data has each of its variants, twice.
    fn list_len(&mut self, variants: usize) -> usize {
        match self.recipe {
            Recipe::Min => 0,
            Recipe::Typical => 1,
            Recipe::Max => 2 * variants,
            Recipe::Drawn(_) => usize::from(self.draw::<1>()[0] % 5),
        }
    }

    fn pick(&mut self, variants: usize, field: &str) -> usize {
        if let Some(variant) = self.variant.take() {
            return variant % variants;
        }
        self.picks += 1;
        match self.recipe {
            Recipe::Min => 0,
            Recipe::Typical => match field {
                "role" => 3,
                "parts" | "summary" | "outcome" | "flag" | "form" | "audience" | "source" | "status" => 0,
                _ => 1,
            },
            Recipe::Max => variants - 1 - (self.picks - 1) % variants,
            Recipe::Drawn(_) => usize::from(self.draw::<1>()[0]) % variants,
        }
    }
}

const ABSENT_TYPICALLY: &[&str] = &[
    "artifact",
    "audit",
    "blocker",
    "candidate",
    "choice",
    "cut",
    "detail",
    "error",
    "extra",
    "imported",
    "inputs",
    "invocation",
    "name",
    "parent",
    "phase",
    "source",
    "source_id",
    "tool_call_id",
];

fn typical(field: &str) -> &str {
    match field {
        "agent" => "reviewer",
        "api_mode" => "responses",
        "branch" => "fix/parser",
        "call_id" => "toolu_01",
        "command" => "agent --resume",
        "goal" | "objective" => "Fix the failing test.",
        "host" => "agent/1.4.0",
        "library" => "0.1.0",
        "machine" => "forge",
        "media_type" => "text/plain",
        "model" => "opus-4",
        "name" => "read_file",
        "note" | "reason" => "asked for",
        "parts" | "text" => "All tests pass now.",
        "prompt" => "Review the change.",
        "provider" => "anthropic",
        "slug" => "home-ada-app",
        "stop_reason" => "tool_use",
        "summary" => "The parser was fixed.",
        "touched_files" => "src/lib.rs",
        "working_directory" | "workspace" => "/home/ada/app",
        "request" => "req_01",
        "response" => "msg_01",
        other => other,
    }
}

/// One value's bytes, leaf by leaf: a number, a length, a discriminant, the bytes of a text.
pub(crate) type Leaves = Vec<Vec<u8>>;

/// A type that payloads are made of.
pub(crate) trait Wire: Sized {
    /// How many variants it has, 1 if it is not an enum.
    const VARIANTS: usize = 1;
    fn make(g: &mut Gen, field: &'static str) -> Self;
    fn spell(&self, out: &mut Leaves);
    fn type_name() -> String;
}

fn spell_len(len: usize, out: &mut Leaves) {
    out.push(u64::try_from(len).unwrap().to_le_bytes().to_vec());
}

impl Wire for u32 {
    fn make(g: &mut Gen, _: &'static str) -> Self {
        g.number(u32::MAX.into()) as Self
    }
    fn spell(&self, out: &mut Leaves) {
        out.push(self.to_le_bytes().to_vec());
    }
    fn type_name() -> String {
        "u32".into()
    }
}

impl Wire for u64 {
    fn make(g: &mut Gen, _: &'static str) -> Self {
        g.number(Self::MAX)
    }
    fn spell(&self, out: &mut Leaves) {
        out.push(self.to_le_bytes().to_vec());
    }
    fn type_name() -> String {
        "u64".into()
    }
}

impl Wire for i64 {
    fn make(g: &mut Gen, _: &'static str) -> Self {
        match g.recipe {
            Recipe::Typical => 1_764_500_000_000_000 + g.next() as Self,
            Recipe::Max => Self::MIN + g.next() as Self,
            _ => g.number(u64::MAX) as Self,
        }
    }
    fn spell(&self, out: &mut Leaves) {
        out.push(self.to_le_bytes().to_vec());
    }
    fn type_name() -> String {
        "i64".into()
    }
}

impl<const N: usize> Wire for [u8; N] {
    fn make(g: &mut Gen, _: &'static str) -> Self {
        g.bytes()
    }
    fn spell(&self, out: &mut Leaves) {
        out.push(self.to_vec());
    }
    fn type_name() -> String {
        format!("{N} bytes")
    }
}

impl Wire for String {
    fn make(g: &mut Gen, field: &'static str) -> Self {
        g.text(field)
    }
    fn spell(&self, out: &mut Leaves) {
        spell_len(self.len(), out);
        out.push(self.as_bytes().to_vec());
    }
    fn type_name() -> String {
        "text".into()
    }
}

impl Wire for RawBytes {
    fn make(g: &mut Gen, field: &'static str) -> Self {
        Self(g.raw(field))
    }
    fn spell(&self, out: &mut Leaves) {
        spell_len(self.0.len(), out);
        out.push(self.0.clone());
    }
    fn type_name() -> String {
        "bytes".into()
    }
}

impl<T: Wire> Wire for Option<T> {
    fn make(g: &mut Gen, field: &'static str) -> Self {
        g.is_set(field).then(|| T::make(g, field))
    }
    fn spell(&self, out: &mut Leaves) {
        out.push(vec![self.is_some().into()]);
        if let Some(value) = self {
            value.spell(out);
        }
    }
    fn type_name() -> String {
        format!("optional {}", T::type_name())
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn make(g: &mut Gen, field: &'static str) -> Self {
        let element = |i, g: &mut Gen| {
            g.variant = (T::VARIANTS > 1 && matches!(g.recipe, Recipe::Max)).then_some(i);
            T::make(g, field)
        };
        (0..g.list_len(T::VARIANTS)).map(|i| element(i, g)).collect()
    }
    fn spell(&self, out: &mut Leaves) {
        spell_len(self.len(), out);
        self.iter().for_each(|element| element.spell(out));
    }
    fn type_name() -> String {
        format!("list of {}", T::type_name())
    }
}

macro_rules! newtypes {
    ($($name:ident($inner:ty))*) => {
        $(impl Wire for $name {
            fn make(g: &mut Gen, field: &'static str) -> Self {
                Self(<$inner>::make(g, field))
            }
            fn spell(&self, out: &mut Leaves) {
                self.0.spell(out);
            }
            fn type_name() -> String {
                stringify!($name).into()
            }
        })*

        /// Every named scalar with what it is on the wire.
        pub(crate) fn scalars() -> Vec<(&'static str, String)> {
            vec![$((stringify!($name), <$inner>::type_name()),)*]
        }
    };
}

newtypes! {
    Position(u64) MessageNo(u64) TurnNo(u64) Epoch(u64) NodeId(u32) ToolIndex(u32) SourceNo(u32) Timestamp(i64)
    SessionId([u8; 16]) InvocationId([u8; 16]) Digest([u8; 32])
}

/// An enum variant: its name, the type it carries, a value of it.
pub(crate) struct Variant {
    pub(crate) name: String,
    pub(crate) carries: Option<String>,
    /// By the codec's encoding, and by this file's.
    pub(crate) encoded: Vec<u8>,
    pub(crate) spelled: Vec<u8>,
}

pub(crate) fn bincode_legacy<T: serde::Serialize>(value: &T) -> Vec<u8> {
    bincode::serde::encode_to_vec(value, bincode::config::legacy()).unwrap()
}

macro_rules! enums {
    ($($name:ident { $($variant:ident $(($value:ident: $inner:ty))?)* })*) => {
        $(impl Wire for $name {
            const VARIANTS: usize = [$(stringify!($variant)),*].len();
            fn make(g: &mut Gen, field: &'static str) -> Self {
                let makers: &[fn(&mut Gen, &'static str) -> Self] =
                    &[$(|_g, _field| Self::$variant $((<$inner>::make(_g, _field)))?),*];
                makers[g.pick(makers.len(), field)](g, field)
            }
            fn spell(&self, out: &mut Leaves) {
                enum Discriminant { $($variant),* }
                match self {
                    $(Self::$variant $(($value))? => {
                        out.push((Discriminant::$variant as u32).to_le_bytes().to_vec());
                        $($value.spell(out);)?
                    })*
                }
            }
            fn type_name() -> String {
                stringify!($name).into()
            }
        })*

        /// Every enum with its variants, in the order of their discriminants.
        pub(crate) fn enums() -> Vec<(&'static str, Vec<Variant>)> {
            vec![$((stringify!($name), {
                let carries: &[Option<String>] = &[$(None$(.or(Some(<$inner>::type_name())))?),*];
                let names = [$(stringify!($variant)),*];
                (0..names.len())
                    .map(|i| {
                        let mut g = Gen::max();
                        g.variant = Some(i);
                        let value = $name::make(&mut g, "value");
                        let mut spelled = Leaves::new();
                        value.spell(&mut spelled);
                        Variant {
                            name: snake_case(names[i]),
                            carries: carries[i].clone(),
                            encoded: bincode_legacy(&value),
                            spelled: spelled.concat(),
                        }
                    })
                    .collect()
            }),)*]
        }
    };
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
    }
    snake
}

enums! {
    Role { System Developer User Assistant Tool }
    Audience { Everyone Model Person }
    Part { Text(v: String) Reasoning(v: Reasoning) Image(v: Media) File(v: Media) Raw(v: RawBytes) }
    ReasoningForm { Plain Signed(v: Option<String>) Opaque(v: String) Summary }
    MediaSource { Base64(v: String) Url(v: String) FileId(v: String) Artifact(v: ArtifactReceipt) }
    CallForm { Function Custom }
    Effect { Pure Idempotent Mutating External }
    Outcome { Succeeded Failed Cancelled Unknown NotStarted }
    ResultFlag { Normal Error }
    ResultOrigin { Live Child Recovery Import }
    Resolver { Host Person }
    CompactionTrigger { Auto Manual Overflow }
    TitleOrigin { Summary Prompt Model Host Person }
    FinalStatus { Completed Failed Interrupted Paused }
    RunReason { Created Cleared Migrated }
    TurnCause { User Recovery Guidance }
    TurnOutcome { Completed Failed Interrupted }
    HeadReason { Rewind Branch Undo }
    AgentKind { Inner External }
    NodeStatus { Completed Blocked Unknown Failed Cancelled }
    CommandKind { Guidance Pause Resume Cancel }
    ChangeStatus { Prepared Submitted Blocked Merged Closed }
    PlanPhase { Target Pending Running Review }
    LearnBoundary { Size TaskComplete PlanApproved Explicit }
    LibraryAction { Create Merge Discard }
    PropositionKind { Workflow ProjectFact Resolution Finding }
    ArchiveFate { Kept Erased }
    LearningSwitch { On Off }
}

/// A field of a struct: its name, its type, its bytes in one value.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) type_name: String,
    pub(crate) leaves: Leaves,
}

impl Field {
    pub(crate) fn len(&self) -> usize {
        self.leaves.iter().map(Vec::len).sum()
    }
}

fn field<T: Wire>(name: &'static str, value: &T) -> Field {
    let mut leaves = Leaves::new();
    value.spell(&mut leaves);
    Field { name, type_name: T::type_name(), leaves }
}

trait Fields {
    fn fields(&self) -> Vec<Field>;
}

macro_rules! structs {
    ($($name:ident { $($field:ident)* })*) => {
        $(impl Wire for $name {
            fn make(g: &mut Gen, _: &'static str) -> Self {
                Self { $($field: Wire::make(g, stringify!($field)),)* }
            }
            fn spell(&self, out: &mut Leaves) {
                $(self.$field.spell(out);)*
            }
            fn type_name() -> String {
                stringify!($name).into()
            }
        }
        impl Fields for $name {
            fn fields(&self) -> Vec<Field> {
                vec![$(field(stringify!($field), &self.$field),)*]
            }
        })*
    };
}

/// The structs inside events: as above, and listed.
macro_rules! inner_structs {
    ($($name:ident { $($field:ident)* })*) => {
        structs! { $($name { $($field)* })* }
        /// Every struct that payloads are made of, with its fields.
        pub(crate) fn inner_structs() -> Vec<(&'static str, Vec<Field>)> {
            vec![$((stringify!($name), $name::make(&mut Gen::min(), "").fields()),)*]
        }
    };
}

/// The events: as above, and by kind.
macro_rules! events {
    ($($name:ident { $($field:ident)* })*) => {
        structs! { $($name { $($field)* })* }
        /// An event of this kind, by a recipe.
        pub(crate) fn make(kind: KindNo, g: &mut Gen) -> Event {
            match kind {
                $(kind::$name => $name::make(g, "").into(),)*
                other => panic!("no sample for kind {other} of the registry"),
            }
        }
        /// An event's fields, spelled.
        pub(crate) fn fields(event: &Event) -> Vec<Field> {
            match event {
                $(Event::$name(event) => event.fields(),)*
                other => panic!("{other:?} has no fields"),
            }
        }
    };
}

inner_structs! {
    CallRef { message_no tool_index }
    MessageRange { first last }
    SourceIds { id parent }
    ProviderIds { response request }
    Usage { input cache_read cache_write output reasoning }
    Reasoning { text form }
    Media { source media_type name detail extra }
    ArtifactReceipt { digest len media_type preview }
    ToolCall { call_id name arguments form extra }
    CallAudit { step_id started_at finished_at arguments_hash exit_error }
    ImportOrigin { agent agent_version session_id }
    CutTail { segment offset len kept quarantine }
}

events! {
    SessionCreated {
        session_id workspace slug goal model provider preset tool_registry_hash host imported extra
    }
    SessionOpened { epoch pid machine command library cut }
    SessionTitled { title origin }
    SessionTagged { added removed }
    SessionFinished { status reason }
    SessionClosed { epoch }
    SessionForked { session_id parent at chain }
    RunStarted { run_id reason }
    TurnStarted { turn cause }
    TurnEnded { turn outcome stage error }
    MessageAppended {
        message_no role audience phase name parts tool_calls tool_call_id model provider stop_reason usage extra source
    }
    MessageExtended { message_no parts tool_calls stop_reason usage source }
    MessageWithdrawn { message_no reason }
    CallStarted { call call_id name effect attempt arguments_digest step_id }
    CallFinished { call call_id outcome flag parts artifact origin audit source }
    CallResolved { call outcome flag parts resolver note }
    ContextCompacted {
        compaction_id summary summary_role kept replaced tokens_before tokens_after trigger model usage inputs source
    }
    ContextTrimmed { calls placeholder tokens_saved source }
    ContextReset { reason }
    HeadMoved { to from reason }
    CheckpointReferenced { id before message_no touched_files note invocation }
    ReplayAttached { message_no model api_mode items }
    AffinitySet { model key api_mode candidate }
    AffinityCleared { reason }
    UsageRecorded { request_id message_no model usage cost_nano_usd latency_ms estimated_input window }
    NodeOpened {
        child invocation_id parent call call_id agent kind prompt description working_directory run_id depth source_id
    }
    NodeBound { model api_mode candidate conversation_id profile_hash }
    NodeSettled { status reason parts }
    NodeDeleted { child descendants actor }
    TaskStarted { objective completion_criteria started_at }
    TaskCompleted { outcome summary findings artifacts verification blocker report }
    PlanApproved { execution_id objective plan }
    PlanAdvanced { execution_id phase task_index attempt targets feedback pending_result }
    PlanFact { execution_id fact }
    PlanResumed { execution_id resume_count }
    PlanDiscarded { execution_id reason }
    PlanCompleted { execution_id results }
    QuestionAsked { question_id call text choices }
    QuestionAnswered { question_id choice text }
    CommandReceived { command_id kind content actor }
    CommandApplied { command_id verdict }
    ChangeRecorded { change_id status repository base head branch worktree summary }
    LearnSegmentClosed { segment_id first last boundary }
    LearnJobStarted { segment_id input_digest generation }
    LearnSlotPending { segment_id slot key request }
    LearnSlotDone { segment_id slot action proposition_id }
    LearnCommitted { segment_id result }
    Redacted { positions reason requested_at }
    ImportStarted { source_no format path node }
    ImportedRaw { source_no line offset next_offset kind bytes }
    GapMarked { file offset len first last explanation }
    HostEvent { namespace name data source }
    TreeRegistered { session_id }
    TreeDeleted { session_id last archive }
    MemoryArchived { record_id kind session_id node position at record }
    LearningSwitched { to }
    ArtifactPut { digest len kind media_type parents session_id }
    ArtifactDropped { digests gc_id }
    LeaseGranted { lease_id digests until }
    LeaseReleased { lease_id }
    GcRan { gc_id before after grace_s roots_digest }
    VectorAttached { record_id model components }
    RootRegistered { session_id workspace }
    RootUnregistered { session_id reason }
    PropositionSubmitted { key kind request_digest request }
    PropositionDecided { key action target reason model }
    PropositionApplied { key entry_id action entry }
    PropositionFailed { key error attempt }
    PropositionDeleted { entry_id reason }
}
