//! One error for the whole engine: a kind that tells the caller what to do, a code for machines, words for people.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::store::Owner;
use sessionlog_codec::segment::COMPRESSED;
use sessionlog_codec::{DecodeError, DecodeErrorKind, TooLarge};

/// What the caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Somebody else owns the session: wait, or open it read-only.
    Locked,
    /// The append contradicts what is stored: look again, then decide.
    Conflict,
    /// Another owner took over: drop the handle; nothing more is written through it.
    Fenced,
    /// The request itself is wrong: change it.
    Invalid,
    /// There is no such thing.
    NotFound,
    /// Stored bytes are hurt. Reading goes on around it; writing is refused. See `logdump verify`.
    Corrupt,
    /// A newer version wrote this: use that version. Nothing was changed.
    Unsupported,
    /// The disk (or a quota) is full: make room and repeat; the handle is still usable.
    Full,
    /// The system failed to read or write.
    Io,
    /// The handle is closed for writing after an earlier failure: open the session again.
    Closed,
}

/// An error of the engine. Cheap to clone.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

struct Inner {
    kind: ErrorKind,
    code: &'static str,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
    owner: Option<Owner>,
}

/// The code of a sync that failed.
const SYNC: &str = "storage.sync";

impl Error {
    /// What the caller can do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// A stable word for machines, such as `session.locked`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.0.code
    }

    /// What the owner wrote about itself, of a `Locked` error. For people: the text may be old or wrong.
    #[must_use]
    pub fn owner(&self) -> Option<&Owner> {
        self.0.owner.as_ref()
    }

    pub(crate) fn locked(path: &Path, owner: Option<Owner>) -> Self {
        let by = owner.as_ref().map_or_else(|| "another process".to_owned(), ToString::to_string);
        let message =
            format!("{} is held by {by}; wait for it, or open the session read-only", path.display());
        let (kind, code) = (ErrorKind::Locked, "session.locked");
        Self(Arc::new(Inner { kind, code, message, source: None, owner }))
    }

    pub(crate) fn new(kind: ErrorKind, code: &'static str, message: impl Into<String>) -> Self {
        Self(Arc::new(Inner { kind, code, message: message.into(), source: None, owner: None }))
    }

    pub(crate) fn with_source(
        kind: ErrorKind,
        code: &'static str,
        message: impl Into<String>,
        source: impl StdError + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Inner {
            kind,
            code,
            message: message.into(),
            source: Some(Box::new(source)),
            owner: None,
        }))
    }

    pub(crate) fn invalid(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, code, message)
    }

    /// An I/O error, with what was being done to which file.
    pub(crate) fn io(doing: &'static str, path: &Path, error: io::Error) -> Self {
        let message = format!("{doing} {} failed", path.display());
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                Self::with_source(ErrorKind::Full, "storage.full", message, error)
            }
            io::ErrorKind::NotFound => Self::with_source(ErrorKind::NotFound, "file.missing", message, error),
            _ => Self::with_source(ErrorKind::Io, "storage.io", message, error),
        }
    }

    /// A sync that failed, for whatever reason: nobody knows what of it is on disk. So it is never `Full`, after which
    /// nothing would be.
    pub(crate) fn sync(path: &Path, error: io::Error) -> Self {
        let message =
            format!("syncing {} failed: what was written may or may not be on disk", path.display());
        Self::with_source(ErrorKind::Io, SYNC, message, error)
    }

    /// Whether it is that of a [`sync`](Self::sync).
    pub(crate) fn is_of_sync(&self) -> bool {
        self.code() == SYNC
    }

    /// Bytes that do not decode, with where they stand.
    pub(crate) fn decode(path: &Path, offset: u64, error: DecodeError) -> Self {
        let at = format!("{} from byte {offset}", path.display());
        match error.kind() {
            DecodeErrorKind::Corrupt => {
                let message = format!("damage in {at}; run `logdump verify` for the whole picture");
                Self::with_source(ErrorKind::Corrupt, "log.damaged", message, error)
            }
            DecodeErrorKind::Unsupported if error.what() == COMPRESSED => {
                let message = format!(
                    "{at} is compressed, and this program can't decompress it: build it with the feature `compression`, or \
                     use a newer version; nothing was changed"
                );
                Self::with_source(ErrorKind::Unsupported, "log.compressed", message, error)
            }
            DecodeErrorKind::Unsupported => {
                let message = format!("{at} was written by a newer version; nothing was changed");
                Self::with_source(ErrorKind::Unsupported, "log.newer", message, error)
            }
        }
    }
}

impl From<TooLarge> for Error {
    fn from(error: TooLarge) -> Self {
        Self::with_source(ErrorKind::Invalid, "append.too_large", "the append is over a limit", error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, code, message, source, .. } = &*self.0;
        f.debug_struct("Error")
            .field("kind", kind)
            .field("code", code)
            .field("message", message)
            .field("source", source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| &**source as &(dyn StdError + 'static))
    }
}

/// The engine's result.
pub type Result<T> = std::result::Result<T, Error>;
