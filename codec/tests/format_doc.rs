//! `FORMAT.md` is compared with the code: its tables with the offsets of real headers, its generated sections word by
//! word. `UPDATE_DOC=1 cargo test -p sessionlog-codec --test format_doc` rewrites the generated sections. It changes
//! documentation only: the golden files decide what the format is.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may panic")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "of samples"
)]

mod support;

use std::fmt::Write;
use std::fs;

use sessionlog_codec::event::Event;
use sessionlog_codec::ids::KindNo;
use sessionlog_codec::limits;
use sessionlog_codec::record::Payload;
use sessionlog_codec::registry::{EVENTS, name_of};
use support::events::{Field, enums, fields, inner_structs, scalars};
use support::reference::{
    GoldenSegment, NamedBytes, PackedReference, RawFrame, RawRecord, concat, packed_entry, segment_header,
};

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/FORMAT.md");

#[test]
fn generated_sections_are_current() {
    let document = fs::read_to_string(PATH).unwrap();
    let mut current = document.clone();
    for (name, text) in sections() {
        let (begin, end) = (format!("<!-- generated: {name} -->\n"), "<!-- end -->");
        let start = current.find(&begin).unwrap_or_else(|| panic!("no section {name}")) + begin.len();
        let len = current[start..].find(end).unwrap();
        current.replace_range(start..start + len, &text);
    }
    assert_eq!(current.matches("<!-- generated: ").count(), sections().len());
    if std::env::var_os("UPDATE_DOC").is_some() {
        fs::write(PATH, &current).unwrap();
    } else if let Some((old, new)) = document.lines().zip(current.lines()).find(|(old, new)| old != new) {
        panic!("FORMAT.md says {old:?}, the code {new:?}; see the top of this file");
    } else {
        assert_eq!(document, current);
    }
}

fn sections() -> Vec<(&'static str, String)> {
    let segment = GoldenSegment::build();
    vec![
        ("limits", limits_table()),
        ("registry", registry_table()),
        (
            "scalars",
            scalars()
                .into_iter()
                .fold(String::new(), |out, (name, inner)| out + &format!("- `{name}`: {inner}\n")),
        ),
        ("enums", enum_list()),
        (
            "structs",
            fenced(inner_structs().iter().map(|(name, fields)| struct_layout(name, fields)).collect()),
        ),
        ("payloads", fenced(payload_dumps())),
        ("segment", fenced(segment_map(&segment))),
        ("segment header", fenced(dump(0, &segment_header(&segment.header)))),
        ("frame", fenced(frame_dump(&segment.frames[1].1, &segment.frames[1].2, segment.header.salt))),
        ("records", fenced([2, 3].map(|i| dump(0, &segment.frames[i].2[0].fields())).join("\n"))),
        ("compressed segment", fenced(compressed_dump(&segment))),
        ("footer", fenced(footer_dump(&segment))),
    ]
}

fn fenced(text: String) -> String {
    format!("```text\n{text}```\n")
}

fn limits_table() -> String {
    let mut out = String::from("| limit | value | |\n|---|---:|---|\n");
    for (name, value, text) in [
        ("SEGMENT_HEADER_LEN", limits::SEGMENT_HEADER_LEN, "bytes of a segment header"),
        ("FRAME_HEADER_LEN", limits::FRAME_HEADER_LEN, "bytes of a frame header"),
        ("RECORD_HEADER_LEN", limits::RECORD_HEADER_LEN, "bytes of a record before its optional fields"),
        (
            "RECORD_OPTIONAL_LEN_MAX",
            limits::RECORD_OPTIONAL_LEN_MAX,
            "bytes of all optional fields of a record",
        ),
        ("FRAME_ALIGNMENT", limits::FRAME_ALIGNMENT, "frames start at multiples of this"),
        ("FOOTER_ENTRY_LEN", limits::FOOTER_ENTRY_LEN, "bytes of a footer entry"),
        ("PAYLOAD_LEN_MAX", limits::PAYLOAD_LEN_MAX, "longest payload, 64 MiB"),
        ("FRAME_LEN_MAX", limits::FRAME_LEN_MAX, "longest frame with header and padding, 80 MiB"),
        ("FRAME_BODY_LEN_MAX", limits::FRAME_BODY_LEN_MAX, "longest body of a frame"),
        (
            "FRAME_RECORDS_MAX",
            limits::FRAME_RECORDS_MAX as usize,
            "most records of a frame, most entries of a footer",
        ),
        (
            "PACKED_HEAD_LEN",
            limits::PACKED_HEAD_LEN,
            "bytes of a compressed segment's head before its entries",
        ),
        ("PACKED_ENTRY_LEN", limits::PACKED_ENTRY_LEN, "bytes of the entry of a block"),
        ("PACKED_LOCATOR_LEN", limits::PACKED_LOCATOR_LEN, "bytes of a compressed segment's locator"),
        ("PACKED_BLOCK_LEN_MAX", limits::PACKED_BLOCK_LEN_MAX, "longest block, decompressed, 1 MiB"),
        ("PACKED_BLOCKS_MAX", limits::PACKED_BLOCKS_MAX, "most blocks of a compressed segment"),
        ("PACKED_LEN_MAX", limits::PACKED_LEN_MAX, "longest segment that may be compressed, 256 MiB"),
    ] {
        writeln!(out, "| `{name}` | {value} | {text} |").unwrap();
    }
    out
}

fn registry_table() -> String {
    let mut out = String::from("| number | event | schema version | log |\n|---:|---|---:|---|\n");
    for (number, name, version) in EVENTS {
        let log = match number.0 {
            1..200 => "tree",
            200..300 => "workspace",
            300..400 => "user",
            other => panic!("{other} is in no range of FORMAT.md"),
        };
        writeln!(out, "| {number} | `{name}` | {version} | {log} |").unwrap();
    }
    out
}

fn enum_list() -> String {
    let mut out = String::new();
    for (name, variants) in enums() {
        let variant = |(i, variant): (usize, &support::events::Variant)| {
            let carries = variant.carries.as_ref().map(|carries| format!(" ({carries})")).unwrap_or_default();
            format!("{i} {}{carries}", variant.name)
        };
        let variants: Vec<_> = variants.iter().enumerate().map(variant).collect();
        writeln!(out, "- `{name}`: {}", variants.join(", ")).unwrap();
    }
    out
}

fn struct_layout(name: &str, fields: &[Field]) -> String {
    let fields: Vec<_> =
        fields.iter().map(|field| format!("    {:<24}{}\n", field.name, field.type_name)).collect();
    format!("{name}\n{}", fields.concat())
}

fn payload_dumps() -> String {
    let mut out = String::new();
    for sample in support::samples() {
        let (_, event) = &sample.forms[1];
        let path = support::golden_dir().join(format!("{}-{}.typical.bin", sample.kind, sample.name));
        let golden = fs::read(path).unwrap();
        let decoded = Event::decode(sample.kind, sample.schema, Payload::Present(&golden)).unwrap();
        assert_eq!(&decoded, event, "{}", sample.name);
        let len = golden.len();
        writeln!(out, "{} {}, schema version {}: {len} bytes", sample.kind, sample.name, sample.schema)
            .unwrap();
        for field in fields(&decoded) {
            let words = field.leaves.iter().map(|leaf| hex(leaf)).filter(|leaf| !leaf.is_empty());
            let lines = wrapped(words, 56);
            writeln!(
                out,
                "    {:<24}{:<28}{}",
                field.name,
                field.type_name,
                lines.join(&format!("\n{:56}", ""))
            )
            .unwrap();
        }
        out.push('\n');
    }
    out.truncate(out.len() - 1);
    out
}

/// Words in lines; a word that is longer than a line is cut.
fn wrapped(words: impl Iterator<Item = String>, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for mut word in words {
        while !word.is_empty() {
            let line = lines.last_mut().unwrap();
            let space = width.saturating_sub(line.len() + usize::from(!line.is_empty()));
            if word.len() > space && !line.is_empty() {
                lines.push(String::new());
                continue;
            }
            let rest = word.split_off(word.len().min(space));
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(&word);
            word = rest;
        }
    }
    lines
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Offset, bytes, field, and the number where it is one.
fn dump(mut offset: usize, fields: &[NamedBytes]) -> String {
    let mut out = String::new();
    for (name, bytes) in fields {
        let number =
            |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        let note = match (*name, bytes.len()) {
            ("magic" | "reserved" | "payload" | "padding", _) => String::new(),
            ("timestamp", _) => format!(" {}", number(bytes) as i64),
            (name, _) if name.contains("checksum") || name == "salt" => format!(" {:#010x}", number(bytes)),
            ("flags", _) => format!(" {:#06x}", number(bytes)),
            (_, 1..=8) => format!(" {}", number(bytes)),
            _ => String::new(),
        };
        for (i, line) in bytes.chunks(16).enumerate() {
            let text = if i == 0 { format!("{name}{note}") } else { String::new() };
            writeln!(out, "{}", format!("{:>6}  {:<34}{text}", offset + 16 * i, hex(line)).trim_end())
                .unwrap();
        }
        offset += bytes.len();
    }
    out
}

fn frame_dump(frame: &RawFrame, records: &[RawRecord], salt: u32) -> String {
    let bytes = frame.bytes(salt);
    let mut parts = frame.header(salt);
    for record in records {
        let mut envelope = record.fields();
        envelope.pop();
        parts.extend(envelope);
        let schema = sessionlog_codec::ids::SchemaVersion(record.schema);
        let event = Event::decode(KindNo(record.kind), schema, Payload::Present(&record.payload)).unwrap();
        parts.extend(fields(&event).into_iter().map(|field| (field.name, field.leaves.concat())));
    }
    let len = concat(&parts).len();
    parts.push(("padding", bytes[len..].to_vec()));
    assert_eq!(concat(&parts), bytes);
    assert_eq!(bytes, fs::read(support::golden_dir().join("frames/2-message.bin")).unwrap());
    dump(0, &parts)
}

fn segment_map(segment: &GoldenSegment) -> String {
    let mut out = String::from("     0  segment header\n");
    let mut offset = limits::SEGMENT_HEADER_LEN;
    for (name, frame, records) in &segment.frames {
        let names: Vec<_> =
            records.iter().map(|record| name_of(KindNo(record.kind)).unwrap_or("?")).collect();
        let (last, file) = (frame.first_position + records.len() as u64, name);
        let positions = match records.len() {
            0 => "no position".to_owned(),
            1 => format!("position {}", frame.first_position),
            _ => format!("positions {} to {}", frame.first_position, last - 1),
        };
        writeln!(out, "{offset:>6}  frame `{file}`, {positions}: {}", names.join(", ")).unwrap();
        offset += frame.bytes(segment.header.salt).len();
    }
    writeln!(out, "{offset:>6}  footer").unwrap();
    writeln!(out, "{:>6}  locator", offset + segment.footer.bytes(segment.header.salt).len()).unwrap();
    out.replace("no position: ", "no position: of a kind (0xff) that may be skipped")
}

/// A compressed file, with its blocks left out.
fn compressed_dump(segment: &GoldenSegment) -> String {
    let file = fs::read(support::golden_dir().with_file_name("v2").join("00000000000000000001.seg")).unwrap();
    let packed = PackedReference::of(&segment.bytes(), &file);
    assert_eq!(packed.bytes(), file);
    let mut out = dump(0, &packed.head[..4]);
    out.push_str("        the rest of the segment header, as above but for the checksum\n");
    let head_at = concat(&packed.outer).len();
    out.push_str(&dump(head_at, &packed.head[packed.outer.len()..]));
    let mut at = concat(&packed.head).len();
    for (nth, (_, stored)) in packed.blocks.iter().enumerate() {
        writeln!(out, "{at:>6}  {} bytes of block {nth}", stored.len()).unwrap();
        at += stored.len();
    }
    writeln!(out, "{at:>6}  the copy of segment header and head").unwrap();
    out + &dump(at + concat(&packed.head).len(), &packed.locator)
}

fn footer_entry(bytes: &[u8]) -> Vec<NamedBytes> {
    let field = |name, range: std::ops::Range<usize>| (name, bytes[range].to_vec());
    vec![
        field("kind", 0..2),
        field("reserved", 2..4),
        field("node", 4..8),
        field("frame offset", 8..12),
        field("timestamp", 12..20),
    ]
}

fn footer_dump(segment: &GoldenSegment) -> String {
    let bytes = segment.bytes();
    let locator_at = bytes.len() - segment.locator.len();
    let start = locator_at - segment.footer.bytes(segment.header.salt).len();
    let mut parts = segment.footer.header(segment.header.salt);
    parts.extend(segment.footer.body.chunks(limits::FOOTER_ENTRY_LEN).map(|entry| ("entry", entry.to_vec())));
    parts.push(("length of the footer", segment.locator[..4].to_vec()));
    parts.push(("complement of the length", segment.locator[4..].to_vec()));
    assert_eq!(concat(&parts), bytes[start..]);
    dump(start, &parts)
}

/// The hand-written tables: each row's offset, size and name are those of the fields that the golden tests prove equal
/// to the codec's bytes.
#[test]
fn hand_written_tables_have_the_offsets_of_the_code() {
    let document = fs::read_to_string(PATH).unwrap();
    let segment = GoldenSegment::build();
    let record = &segment.frames[2].2[0];
    let packed = PackedReference::of(&segment.bytes(), &[]);
    let mut entries = 0;
    for (table, fields, len) in [
        ("segment header", segment_header(&segment.header), limits::SEGMENT_HEADER_LEN),
        ("frame header", segment.footer.header(0), limits::FRAME_HEADER_LEN),
        ("record", record.fields(), limits::RECORD_HEADER_LEN + limits::RECORD_OPTIONAL_LEN_MAX),
        (
            "compressed head",
            packed.head[packed.outer.len()..]
                .iter()
                .filter(|(name, _)| {
                    entries += usize::from(*name == "entry");
                    *name != "entry" || entries == 1
                })
                .cloned()
                .collect(),
            128 + limits::PACKED_HEAD_LEN + limits::PACKED_ENTRY_LEN + 4,
        ),
        ("compressed entry", packed_entry(512, b"stored"), limits::PACKED_ENTRY_LEN),
        (
            "footer entry",
            footer_entry(&segment.footer.body[..limits::FOOTER_ENTRY_LEN]),
            limits::FOOTER_ENTRY_LEN,
        ),
    ] {
        let (_, rest) = document.split_once(&format!("<!-- table: {table} -->\n")).unwrap();
        let mut rows = rest.lines().skip(2).take_while(|line| line.starts_with('|'));
        let mut offset = if table == "compressed head" { 128 } else { 0 };
        for (name, bytes) in &fields {
            let row: Vec<_> = rows.next().unwrap_or("").split('|').map(str::trim).skip(1).take(3).collect();
            // Behind an optional field, an offset depends.
            let depends = table == "record" && offset > 24 || table == "compressed head" && offset > 296;
            let at = if depends { String::new() } else { offset.to_string() };
            let size = if *name == "payload" { String::new() } else { bytes.len().to_string() };
            assert_eq!(row, [at.as_str(), size.as_str(), name], "{table}");
            offset += if *name == "payload" { 0 } else { bytes.len() };
        }
        assert_eq!(offset, len, "{table}");
        assert_eq!(rows.next(), None, "{table}");
    }
}

#[test]
fn the_document_names_the_constants_of_the_code() {
    let document = fs::read_to_string(PATH).unwrap();
    use sessionlog_codec::{chain, frame, packed, segment};
    for text in [
        format!("`{}`", chain::CONTEXT),
        format!("`{}`", chain::GENESIS_CONTEXT),
        format!("`{}`", segment::SALT_CONTEXT),
        format!("u8: {:#04x} records, {:#04x} footer", frame::KIND_RECORDS, frame::KIND_FOOTER),
        format!("({:#04x}): set,", frame::KIND_IGNORABLE),
        format!(
            "The format of a sessionlog, versions {} and {}",
            segment::FORMAT_VERSION,
            packed::PACKED_VERSION
        ),
    ] {
        assert!(document.contains(&text), "FORMAT.md lacks {text}");
    }
    assert_eq!(support::reference::crc32(0, b"123456789"), 0xcbf4_3926);
}
