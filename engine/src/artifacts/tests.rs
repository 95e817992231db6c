//! What only the crate itself can reach.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use sessionlog_codec::ids::{Digest, Timestamp};

use super::mark::Finder;
use super::{Artifacts, NewArtifact};
use crate::clock::SystemClock;
use crate::session::{Message, NewSession, Session};
use crate::storage::{SimStorage, Storage};
use crate::store::{Store, StoreOptions};

fn session_on(storage: &SimStorage) -> (Store, Session) {
    let clock = Arc::new(SystemClock);
    let store =
        Store::open_on(Arc::new(storage.clone()), clock, Path::new("home"), StoreOptions::default()).unwrap();
    let session = store.create("/w", NewSession::new("try")).unwrap();
    (store, session)
}

fn put(artifacts: &Artifacts, content: &str) -> Digest {
    artifacts.put(NewArtifact::new("text", content)).unwrap().digest
}

/// A session is forgotten: what only it named goes at once, whatever its age; nothing else does.
#[test]
fn what_a_forgotten_session_alone_named_goes_at_once() {
    let storage = SimStorage::new();
    let (store, session) = session_on(&storage);
    let gone = store.create("/w", NewSession::new("gone")).unwrap();
    let [own, shared, base] = ["own", "shared", "base"].map(|content| put(&gone.artifacts(), content));
    let parent = NewArtifact::new("text", "derived").parent(base);
    let derived = gone.artifacts().put(parent).unwrap().digest;
    let [leased, elsewhere, others] =
        ["leased", "elsewhere", "others"].map(|content| put(&gone.artifacts(), content));
    // Another session put the same, and has not come to naming it; and a host did, in no session's name.
    put(&session.artifacts(), "others");
    put(&store.artifacts(&session.place().workspace), "elsewhere");
    session.append(Message::user(format!("See {shared} and {derived}"))).unwrap();
    session.artifacts().lease(&[leased], Timestamp(i64::MAX)).unwrap();
    let shelf = store.reader().path().join(format!("workspaces/{}/artifacts/aa", session.place().workspace));
    let half = format!("{}.0197.new", "aa".repeat(32));
    storage.put_file(shelf.join(half), *b"half of the session's text").unwrap();
    // A result that its process did not live to name.
    let artifacts = gone.artifacts();
    let orphan = artifacts.put_held(&artifacts.hold().unwrap(), b"orphan", None).unwrap().digest;
    let place = gone.place().clone();
    std::mem::forget(gone);
    for path in storage.files().into_iter().filter(|path| path.starts_with(&place.dir)) {
        storage.remove_file(&path).unwrap();
    }
    // Its directory is gone as well: an empty one is still a session that put what it put.
    storage.rename(&place.dir, &place.dir.with_file_name("gone")).unwrap();

    let candidates = BTreeSet::from([own, shared, base, derived, leased, elsewhere, others]);
    let dropped = session.artifacts().drop_unreferenced(&candidates).unwrap();
    let dropped: BTreeSet<_> = dropped.iter().map(|entry| entry.digest).collect();
    assert_eq!(dropped, BTreeSet::from([own, orphan]));
    let left: BTreeSet<_> =
        session.artifacts().read().list().unwrap().into_iter().map(|entry| entry.digest).collect();
    assert_eq!(left, BTreeSet::from([shared, base, derived, leased, elsewhere, others]));
    assert!(!storage.files().iter().any(|path| path.to_string_lossy().ends_with(".new")));
    assert_eq!(session.artifacts().drop_unreferenced(&candidates).unwrap(), []);
}

#[test]
fn a_digest_is_found_wherever_it_stands_and_however_it_is_spelled() {
    let (wanted, other) = (Digest::of(b"wanted"), Digest::of(b"other"));
    let set = BTreeSet::from([wanted]);
    let finder = Finder::of(&set);
    let count = |bytes: &[u8]| {
        let mut count = 0;
        finder.find(bytes, &mut |digest| {
            assert_eq!(digest, wanted);
            count += 1;
        });
        count
    };
    let text = wanted.to_string();
    for around in [0, 1, 7, 31] {
        let mut bytes = vec![0xEE; around];
        bytes.extend_from_slice(&wanted.0);
        bytes.extend_from_slice(&vec![0x11; around]);
        assert_eq!(count(&bytes), 1);
        assert_eq!(count(&bytes[..around + 31]), 0, "cut off");
        let spelled = format!("{}{}{}", "f".repeat(around), text.to_uppercase(), "0".repeat(around));
        assert_eq!(count(spelled.as_bytes()), 1);
    }
    assert_eq!(count(format!("{text} and {text}").as_bytes()), 2);
    assert_eq!(count(other.to_string().as_bytes()), 0);
    assert_eq!(count(&other.0), 0);
    assert_eq!(count(&text.as_bytes()[..63]), 0);
    assert_eq!(count(b""), 0);
}
