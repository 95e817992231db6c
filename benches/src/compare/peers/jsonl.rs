//! A file of JSON lines for each session, as most agents keep them.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::{Peer, Promise, Store, Writer};
use crate::Result;
use crate::data::Message;

pub(super) const PEERS: &[Peer] = &[
    Peer {
        name: "jsonl-fdatasync",
        promise: Promise::Durable,
        open: |dir| Jsonl::open(dir, true, Parser::Serde),
    },
    Peer { name: "jsonl", promise: Promise::Written, open: |dir| Jsonl::open(dir, false, Parser::Serde) },
    // The same files: what differs is who reads and writes the JSON.
    Peer {
        name: "jsonl-sonic",
        promise: Promise::Written,
        open: |dir| Jsonl::open(dir, false, Parser::Sonic),
    },
];

#[derive(Clone, Copy)]
enum Parser {
    Serde,
    Sonic,
}

impl Parser {
    fn parse(self, line: &[u8]) -> Result<Message> {
        Ok(match self {
            Self::Serde => serde_json::from_slice(line)?,
            Self::Sonic => sonic_rs::from_slice(line)?,
        })
    }
}

struct Jsonl {
    dir: PathBuf,
    sync: bool,
    parser: Parser,
}

impl Jsonl {
    fn open(dir: &Path, sync: bool, parser: Parser) -> Result<Box<dyn Store>> {
        std::fs::create_dir_all(dir)?;
        Ok(Box::new(Self { dir: dir.to_owned(), sync, parser }))
    }

    fn path(&self, session: u64) -> PathBuf {
        self.dir.join(format!("{session}.jsonl"))
    }
}

impl Store for Jsonl {
    fn begin(&self, session: u64, _: &[Message]) -> Result<Box<dyn Writer + '_>> {
        let file = OpenOptions::new().append(true).create(true).open(self.path(session))?;
        Ok(Box::new(JsonlWriter { file, sync: self.sync, parser: self.parser, line: Vec::new() }))
    }

    fn load(&self, session: u64) -> Result<Vec<Message>> {
        // A megabyte at a time: the fastest that was found, and no second copy of the file in memory.
        let (mut file, mut messages) = (File::open(self.path(session))?, Vec::new());
        let (mut buffer, mut filled) = (vec![0; 1 << 20], 0);
        loop {
            if filled == buffer.len() {
                buffer.resize(buffer.len() * 2, 0);
            }
            let read = file.read(&mut buffer[filled..])?;
            filled += read;
            let whole = buffer[..filled].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            for line in buffer[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                messages.push(self.parser.parse(line)?);
            }
            buffer.copy_within(whole..filled, 0);
            filled -= whole;
            if read == 0 {
                return Ok(messages);
            }
        }
    }

    fn tail(&self, session: u64, n: usize) -> Result<Vec<Message>> {
        // Backwards, until there are enough lines.
        let mut file = File::open(self.path(session))?;
        let (mut start, mut bytes) = (file.metadata()?.len(), Vec::new());
        while start > 0 && bytes.iter().filter(|byte| **byte == b'\n').count() <= n {
            let step = start.min(64 << 10);
            start -= step;
            let mut before = vec![0; usize::try_from(step)?];
            file.seek(SeekFrom::Start(start))?;
            file.read_exact(&mut before)?;
            before.extend_from_slice(&bytes);
            bytes = before;
        }
        let lines: Vec<_> = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
        lines[lines.len().saturating_sub(n)..].iter().map(|line| self.parser.parse(line)).collect()
    }
}

struct JsonlWriter {
    file: File,
    sync: bool,
    parser: Parser,
    line: Vec<u8>,
}

impl Writer for JsonlWriter {
    fn append(&mut self, messages: &[Message]) -> Result<()> {
        self.line.clear();
        for message in messages {
            match self.parser {
                Parser::Serde => serde_json::to_writer(&mut self.line, message)?,
                Parser::Sonic => sonic_rs::to_writer(&mut self.line, message)?,
            }
            self.line.push(b'\n');
        }
        self.file.write_all(&self.line)?;
        if self.sync {
            self.file.sync_data()?;
        }
        Ok(())
    }
}
