//! A disk that fails a sync once: ext4 on a loop device whose backing file has no room left.
//!
//! The kernel takes the host's bytes into the page cache, fails the `fdatasync`, marks the pages clean, says Ok to the next
//! `fdatasync`, and goes on showing the bytes to everybody. So the host must not try again, and whoever takes the session over
//! must not believe that what it reads is on disk, also once there is room again.
//!
//! What an heir takes over it writes anew, into a file of its own. Where recovery does not do that, and syncs the file that is
//! there, this test finds acknowledged records of the heir missing on the disk, and its log damaged for good.

use std::io::Write;
use std::path::Path;

use sessionlog::codec::ids::{NodeId, SessionId};
use sessionlog::{ErrorKind, Message, NewSession, Session, Store};

use super::disk::{Mount, run};
use super::host::{Lie, options, said};
use super::oracle::Told;
use super::{Running, number, tell};

fn say(what: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{what}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

fn append(session: &Session) -> sessionlog::Result<()> {
    let (id, no) = (session.id(), session.ledger(|ledger| ledger.next_message_no(NodeId::ROOT))?);
    say(&format!("try {id} {no} message"));
    let appended = session.append(Message::user(said(no.0)))?;
    say(&format!("ack {id} {} message {no}", appended.receipt.last));
    Ok(())
}

/// The owner whose disk fails: nothing is acknowledged falsely, nothing is acknowledged after it.
pub(crate) fn host(home: &Path, id: SessionId, fill: &Path, first: u64) {
    let store = Store::open_with(home, options(Lie::Honest)).unwrap();
    let session =
        store.create_foreign(b"/w", NewSession { id: Some(id), ..NewSession::new("fail") }).unwrap();
    say(&format!("ack {id} {} own", session.last()));
    for _ in 0..first {
        append(&session).unwrap();
    }
    fill_up(fill);
    let failed = (0..10_000).find_map(|_| append(&session).err()).unwrap();
    assert_eq!(failed.kind(), ErrorKind::Io, "{failed:?}");
    assert_eq!(failed.code(), "storage.sync", "{failed:?}");
    for _ in 0..3 {
        let again = append(&session).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::Closed, "{again:?}");
    }
    assert_eq!(session.close().unwrap_err().kind(), ErrorKind::Closed);
}

/// Takes all room that there is below the disk.
fn fill_up(path: &Path) {
    let mut file = std::fs::File::create(path).unwrap();
    for len in [1 << 16, 4096, 512] {
        while file.write_all(&vec![b'F'; len]).is_ok() {}
    }
    drop(file.sync_all());
}

/// The next owner, on the same machine: the page cache still shows what was never written.
pub(crate) fn heir(home: &Path, id: SessionId) {
    let store = Store::open_with(home, options(Lie::Honest)).unwrap();
    let (session, report) = store.resume(id).unwrap();
    say(&format!("ack {id} {} own", report.last));
    say(&format!("ack {id} {} own", session.last()));
    append(&session).unwrap();
    std::mem::forget(session);
}

pub(crate) fn harness() {
    let rounds = number("SESSIONLOG_GATES", 4);
    let mut shown_and_lost = 0;
    for first in 0..rounds {
        shown_and_lost += u64::from(round(first));
    }
    // Else nobody was told a lie, and nothing is proven.
    assert!(shown_and_lost > 0 || rounds == 0, "no disk showed what it did not have");
    tell(&format!("{rounds} disks failed a sync; {shown_and_lost} showed records that they did not have"));
}

/// One disk, from full to repaired. Whether the page cache showed a record that the disk did not have.
fn round(first: u64) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let room = Mount::tmpfs(dir.path().to_owned());
    let image = room.path().join("below.img");
    std::fs::File::create(&image).unwrap().set_len(24 << 20).unwrap();
    run("mkfs.ext4", &["-q", "-F", "-m0", image.to_str().unwrap()]);
    let below = Mount::new(&image, room.path().join("below"), "loop");
    let disk = below.path().join("disk.img");
    std::fs::File::create(&disk).unwrap().set_len(64 << 20).unwrap();
    let made =
        ["-q", "-F", "-m0", "-J", "size=4", "-E", "lazy_itable_init=1,nodiscard", disk.to_str().unwrap()];
    run("mkfs.ext4", &made);
    // Else the kernel's own commit, which comes every five seconds, may be the first that fails, and takes the disk away.
    let above = Mount::new(&disk, room.path().join("above"), "loop,errors=continue,noatime,commit=300");
    let (home, fill) = (above.path().join("home"), below.path().join("fill"));
    let id = sessionlog::new_session_id();
    let role = format!("gate-host|{}|{id}|{}|{first}", home.display(), fill.display());
    let told = Running::start(&role, Told::default()).end(false);
    // What the disk has now, and what the machine shows.
    let after = |name: &str, look: &dyn Fn(&Path) -> u64| {
        let copy = room.path().join(name);
        run("cp", &["--sparse=always", disk.to_str().unwrap(), copy.to_str().unwrap()]);
        let mount = Mount::new(&copy, room.path().join("copy"), "loop");
        let seen = look(&mount.path().join("home"));
        drop(mount);
        seen
    };
    let records = |home: &Path| {
        let reader = sessionlog::StoreReader::open(home).unwrap().session(id).unwrap();
        reader.log().verify().unwrap().last.0
    };
    let (on_disk, shown) = (after("failed.img", &records), records(&home));
    std::fs::remove_file(&fill).unwrap();
    let told = Running::start(&format!("gate-heir|{}|{id}", home.display()), told).end(false);
    after("resumed.img", &|home| {
        let checked = told.check(&told, home);
        checked.unwrap_or_else(|what| panic!("{first} messages before the disk was full: {what}")).sessions
    });
    shown > on_disk
}
