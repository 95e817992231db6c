//! Segments, frames and records by the letter of `FORMAT.md`: a field list each, a checksum computed bit by bit, a chain
//! hash over bytes written down here. It writes everything, also what the codec refuses to write.

use sessionlog_codec::event::{Event, MessageAppended, Role, SessionTitled, TitleOrigin};
use sessionlog_codec::ids::*;
use sessionlog_codec::registry::kind;
use sessionlog_codec::segment::SegmentHeader;

use super::events::{Gen, make};

/// A named field and its bytes.
pub(crate) type NamedBytes = (&'static str, Vec<u8>);

pub(crate) fn concat(fields: &[NamedBytes]) -> Vec<u8> {
    fields.iter().flat_map(|(_, bytes)| bytes.clone()).collect()
}

/// CRC-32/ISO-HDLC that goes on from the checksum `seed`; 0 to begin.
pub(crate) fn crc32(seed: u32, bytes: &[u8]) -> u32 {
    let mut register = !seed;
    for byte in bytes {
        register ^= u32::from(*byte);
        for _ in 0..8 {
            register = (register >> 1) ^ if register & 1 == 1 { 0xedb8_8320 } else { 0 };
        }
    }
    !register
}

pub(crate) fn segment_header(header: &SegmentHeader) -> Vec<NamedBytes> {
    let mut fields = vec![
        ("magic", vec![0x89, b'S', b'L', b'O', b'G', b'\r', b'\n', 0x1a]),
        ("header length", 128_u32.to_le_bytes().to_vec()),
        ("format version", header.format.0.to_le_bytes().to_vec()),
        ("lowest reader version", header.reader.0.to_le_bytes().to_vec()),
        ("log id", header.log_id.0.to_vec()),
        ("segment number", header.segment_no.0.to_le_bytes().to_vec()),
        ("first position", header.first_position.0.to_le_bytes().to_vec()),
        ("epoch", header.epoch.0.to_le_bytes().to_vec()),
        ("salt", header.salt.to_le_bytes().to_vec()),
        ("reserved", vec![0; 4]),
        ("previous chain hash", header.previous.0.to_vec()),
        ("origin log id", header.forked_from.map_or(vec![0; 16], |id| id.0.to_vec())),
        ("reserved", vec![0; 12]),
    ];
    let crc = crc32(0, &concat(&fields));
    fields.push(("checksum", crc.to_le_bytes().to_vec()));
    fields
}

/// A frame of any kind, well-formed or not, with checksums that hold.
#[derive(Clone, Debug)]
pub(crate) struct RawFrame {
    pub(crate) kind: u8,
    pub(crate) reserved: u8,
    pub(crate) flags: u16,
    pub(crate) record_count: u32,
    pub(crate) first_position: u64,
    pub(crate) epoch: u64,
    pub(crate) synced: u64,
    pub(crate) chain: Digest,
    pub(crate) body: Vec<u8>,
}

impl RawFrame {
    pub(crate) fn records(first_position: u64, records: &[RawRecord]) -> Self {
        Self {
            kind: 1,
            reserved: 0,
            flags: 0,
            record_count: u32::try_from(records.len()).unwrap(),
            first_position,
            epoch: 1,
            synced: first_position - 1,
            chain: Digest::default(),
            body: records.iter().flat_map(|record| concat(&record.fields())).collect(),
        }
    }

    pub(crate) fn header(&self, salt: u32) -> Vec<NamedBytes> {
        let mut fields = vec![
            ("magic", vec![0xf5, b'S', b'L', b'f']),
            ("kind", vec![self.kind]),
            ("reserved", vec![self.reserved]),
            ("flags", self.flags.to_le_bytes().to_vec()),
            ("body length", u32::try_from(self.body.len()).unwrap().to_le_bytes().to_vec()),
            ("record count", self.record_count.to_le_bytes().to_vec()),
            ("first position", self.first_position.to_le_bytes().to_vec()),
            ("epoch", self.epoch.to_le_bytes().to_vec()),
            ("synced", self.synced.to_le_bytes().to_vec()),
            ("chain hash", self.chain.0.to_vec()),
            ("body checksum", crc32(0, &self.body).to_le_bytes().to_vec()),
        ];
        let crc = crc32(salt, &concat(&fields));
        fields.push(("header checksum", crc.to_le_bytes().to_vec()));
        fields
    }

    pub(crate) fn bytes(&self, salt: u32) -> Vec<u8> {
        let mut bytes = [concat(&self.header(salt)), self.body.clone()].concat();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    /// The chain hash: of a frame of these records, after `previous`.
    pub(crate) fn chained(mut self, previous: Digest, records: &[RawRecord]) -> Self {
        let mut input = previous.0.to_vec();
        input.push(self.kind);
        input.extend(self.flags.to_le_bytes());
        input.extend(self.first_position.to_le_bytes());
        input.extend(self.record_count.to_le_bytes());
        input.extend(self.epoch.to_le_bytes());
        input.extend(self.synced.to_le_bytes());
        for record in records {
            input.extend(record.node.to_le_bytes());
            input.extend(record.kind.to_le_bytes());
            input.extend(record.schema.to_le_bytes());
            input.extend((record.flags & !RawRecord::REDACTED).to_le_bytes());
            input.extend(record.timestamp.to_le_bytes());
            input.extend(record.cause.unwrap_or(0).to_le_bytes());
            input.extend(record.key.unwrap_or([0; 16]));
            if record.flags & RawRecord::REDACTED == 0 {
                input.extend(blake3::hash(&record.payload).as_bytes());
            } else {
                input.extend(&record.payload);
            }
        }
        self.chain = Digest(blake3::derive_key("sessionlog 2026-11 frame chain v1", &input));
        self
    }
}

/// A record with whatever flags. Redacted: `payload` is the digest.
#[derive(Clone, Debug, Default)]
pub(crate) struct RawRecord {
    pub(crate) node: u32,
    pub(crate) kind: u16,
    pub(crate) schema: u16,
    pub(crate) flags: u16,
    pub(crate) reserved: u16,
    pub(crate) timestamp: i64,
    pub(crate) cause: Option<u64>,
    pub(crate) key: Option<[u8; 16]>,
    pub(crate) payload: Vec<u8>,
}

impl RawRecord {
    pub(crate) const CAUSE: u16 = 1;
    pub(crate) const KEY: u16 = 2;
    pub(crate) const REDACTED: u16 = 4;
    pub(crate) const ESTIMATED: u16 = 8;
    pub(crate) const MUST_UNDERSTAND: u16 = 16;

    pub(crate) fn of(event: &Event) -> Self {
        let (kind, schema) = event.kind();
        let payload = event.encode().unwrap();
        Self { kind: kind.0, schema: schema.0, timestamp: 1_764_500_000_000_000, payload, ..Self::default() }
    }

    pub(crate) fn fields(&self) -> Vec<NamedBytes> {
        let mut fields = vec![
            ("node", self.node.to_le_bytes().to_vec()),
            ("kind", self.kind.to_le_bytes().to_vec()),
            ("schema version", self.schema.to_le_bytes().to_vec()),
            ("flags", self.flags.to_le_bytes().to_vec()),
            ("reserved", self.reserved.to_le_bytes().to_vec()),
            ("payload length", u32::try_from(self.payload.len()).unwrap().to_le_bytes().to_vec()),
            ("timestamp", self.timestamp.to_le_bytes().to_vec()),
        ];
        fields.extend(self.cause.map(|cause| ("cause", cause.to_le_bytes().to_vec())));
        fields.extend(self.key.map(|key| ("idempotency key", key.to_vec())));
        fields.push(("payload", self.payload.clone()));
        fields
    }
}

/// The records of the golden segment, frame by frame.
fn golden_records() -> Vec<(&'static str, Vec<RawRecord>)> {
    let message =
        |n, role, text: &str| RawRecord::of(&MessageAppended::text(MessageNo(n), role, text).into());
    let typical = |kind| RawRecord::of(&make(kind, &mut Gen::typical()));
    let batch = vec![
        typical(kind::SessionCreated),
        typical(kind::SessionOpened),
        RawRecord {
            key: Some(*b"idempotency key!"),
            flags: RawRecord::KEY,
            ..RawRecord::of(&SessionTitled { title: "A title".into(), origin: TitleOrigin::Host }.into())
        },
    ];
    let message_record = vec![message(1, Role::User, "Fix the failing test.")];
    let optional = vec![RawRecord {
        node: 2,
        cause: Some(4),
        key: Some([0xab; 16]),
        timestamp: -1,
        flags: RawRecord::CAUSE | RawRecord::KEY | RawRecord::ESTIMATED | RawRecord::MUST_UNDERSTAND,
        ..typical(kind::CallStarted)
    }];
    let secret = message(2, Role::User, "my password is hunter2");
    let redacted = vec![RawRecord {
        flags: RawRecord::REDACTED,
        payload: blake3::hash(&secret.payload).as_bytes().to_vec(),
        ..secret
    }];
    let unknown = vec![
        RawRecord { kind: 9_999, schema: 7, payload: b"from the future".to_vec(), ..RawRecord::default() },
        RawRecord { schema: 99, payload: Vec::new(), ..message(3, Role::User, "") },
    ];
    vec![
        ("batch", batch),
        ("message", message_record),
        ("optional-fields", optional),
        ("redacted", redacted),
        ("unknown-events", unknown),
    ]
}

/// The segment of the golden files, built by the letter: its header, its frames by name, its footer and its locator.
pub(crate) struct GoldenSegment {
    pub(crate) header: SegmentHeader,
    pub(crate) frames: Vec<(&'static str, RawFrame, Vec<RawRecord>)>,
    pub(crate) footer: RawFrame,
    pub(crate) locator: Vec<u8>,
}

impl GoldenSegment {
    pub(crate) fn build() -> Self {
        let log_id = LogId(*b"\x01\x97\xb4\xa2\x7c\x1e\x70\x00\x80\x00\x01\x23\x45\x67\x89\xab");
        let genesis = Digest(blake3::derive_key("sessionlog 2026-11 chain genesis v1", &log_id.0));
        let salt_of = [log_id.0.as_slice(), &0_u64.to_le_bytes()].concat();
        let [a, b, c, d, ..] = blake3::derive_key("sessionlog 2026-11 segment salt v1", &salt_of);
        let header = SegmentHeader {
            format: FormatVersion(1),
            reader: FormatVersion(1),
            log_id,
            segment_no: SegmentNo(0),
            first_position: Position(1),
            epoch: Epoch(1),
            salt: u32::from_le_bytes([a, b, c, d]),
            previous: genesis,
            forked_from: None,
        };
        let mut position = 1;
        let mut chain = genesis;
        let mut frames = Vec::new();
        for (name, records) in golden_records() {
            let frame = RawFrame::records(position, &records).chained(chain, &records);
            chain = frame.chain;
            position += u64::from(frame.record_count);
            frames.push((name, frame, records));
        }
        // A frame of a kind that does not exist yet, between the others: skipped, and no part of the chain.
        let body = b"an index to come".to_vec();
        let last = RawFrame { chain, body, ..RawFrame::records(position, &[]) };
        frames.push(("skipped", RawFrame { kind: 0xff, record_count: 2, ..last.clone() }, Vec::new()));
        let mut entries = Vec::new();
        let mut offset = 128_u32;
        for (_, frame, records) in &frames {
            for record in records {
                entries.extend(record.kind.to_le_bytes());
                entries.extend([0; 2]);
                entries.extend(record.node.to_le_bytes());
                entries.extend(offset.to_le_bytes());
                entries.extend(record.timestamp.to_le_bytes());
            }
            offset += u32::try_from(frame.bytes(0).len()).unwrap();
        }
        let record_count = u32::try_from(position - 1).unwrap();
        let footer = RawFrame { kind: 0x82, record_count, body: entries, ..last };
        let len = u32::try_from(footer.bytes(0).len()).unwrap();
        let locator = [len.to_le_bytes(), (!len).to_le_bytes()].concat();
        Self { header, frames, footer, locator }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = concat(&segment_header(&self.header));
        for (_, frame, _) in &self.frames {
            bytes.extend(frame.bytes(self.header.salt));
        }
        bytes.extend(self.footer.bytes(self.header.salt));
        bytes.extend(&self.locator);
        bytes
    }
}

/// A compressed segment, by the letter: what its blocks are is given.
pub(crate) struct PackedReference {
    /// The header that the file begins with.
    pub(crate) outer: Vec<NamedBytes>,
    /// The same, and the head.
    pub(crate) head: Vec<NamedBytes>,
    /// How long each block is, and its bytes in the file.
    pub(crate) blocks: Vec<(usize, Vec<u8>)>,
    pub(crate) locator: Vec<NamedBytes>,
}

impl PackedReference {
    /// Of a segment, with the blocks of a file that stands for it, as its entries tell them; one block if there is no file.
    pub(crate) fn of(segment: &[u8], file: &[u8]) -> Self {
        let number = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap()) as usize;
        let mut blocks = Vec::new();
        if file.is_empty() {
            blocks.push((segment.len() - 128, b"block".to_vec()));
        } else {
            let mut at = number(136);
            for nth in 0..number(148) {
                let (len, stored) = (number(296 + 12 * nth), number(300 + 12 * nth));
                blocks.push((len, file[at..at + stored].to_vec()));
                at += stored;
            }
        }
        let own = SegmentHeader::decode(segment).unwrap();
        let next = golden_records().iter().map(|(_, records)| records.len() as u64).sum::<u64>() + 1;
        let version = FormatVersion(2);
        let outer = segment_header(&SegmentHeader { format: version, reader: version, ..own });
        let len = |len: usize| u32::try_from(len).unwrap().to_le_bytes().to_vec();
        let end = 128 + 168 + 12 * blocks.len() + 4;
        let magic = vec![0x89, b'S', b'L', b'O', b'G', b'Z', b'\r', b'\n'];
        let mut fields = vec![
            ("magic", magic.clone()),
            ("head length", len(end)),
            ("method", vec![1, 0]),
            ("reserved", vec![0, 0]),
            ("longest block", len(blocks.iter().map(|(len, _)| *len).max().unwrap())),
            ("block count", len(blocks.len())),
            ("length", (segment.len() as u64).to_le_bytes().to_vec()),
            ("next position", next.to_le_bytes().to_vec()),
            ("own header", segment[..128].to_vec()),
        ];
        for (len, stored) in &blocks {
            fields.push(("entry", concat(&packed_entry(*len, stored))));
        }
        let crc = crc32(0, &concat(&fields));
        fields.push(("checksum", crc.to_le_bytes().to_vec()));
        let mut head = outer.clone();
        head.extend(fields);
        let complement = (!u32::try_from(end).unwrap()).to_le_bytes().to_vec();
        let locator = vec![
            ("magic", magic),
            ("length of the copy", len(end)),
            ("complement of the length", complement),
        ];
        Self { outer, head, blocks, locator }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let head = concat(&self.head);
        let blocks = self.blocks.iter().map(|(_, stored)| stored.clone()).collect::<Vec<_>>().concat();
        [head.clone(), blocks, head, concat(&self.locator)].concat()
    }
}

pub(crate) fn packed_entry(len: usize, stored: &[u8]) -> Vec<NamedBytes> {
    let number = |len: usize| u32::try_from(len).unwrap().to_le_bytes().to_vec();
    vec![
        ("length", number(len)),
        ("stored length", number(stored.len())),
        ("checksum", crc32(0, stored).to_le_bytes().to_vec()),
    ]
}
