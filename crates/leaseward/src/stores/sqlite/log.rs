//! How long the write-ahead log is: not as long as its file, which is written again from its start after each copying back.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::Path,
};

use super::file::beside;

/// The header of the file, and of each frame: <https://www.sqlite.org/fileformat2.html#walformat>.
const HEADER: u64 = 32;
const FRAME_HEADER: u64 = 24;

/// Whether the log has so many pages, one at least. SQLite does not lock this file, so that it may be opened and closed here.
pub(super) fn has_pages(path: &Path, pages: u32) -> bool {
    look(path, pages).unwrap_or(false)
}

/// Frames of the log as it is now bear its salt; those after them are of an older one.
fn look(path: &Path, pages: u32) -> io::Result<bool> {
    let mut log = File::open(beside(path, "-wal"))?;
    let mut header = [0_u8; 24];
    log.read_exact(&mut header)?;
    let page = u64::from(u32::from_be_bytes([header[8], header[9], header[10], header[11]]));
    let frames_before = u64::from(pages.saturating_sub(1));
    log.seek(SeekFrom::Start(HEADER + frames_before * (FRAME_HEADER + page)))?;
    let mut frame = [0_u8; 16];
    match log.read_exact(&mut frame) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| frame[8..] == header[16..]),
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    #[test]
    fn counts_what_was_written_since_it_began_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.db");
        let conn = Connection::open(&path).expect("a file");
        conn.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (x)",
        )
        .expect("writable");
        let checkpoint = |kind: &str| -> i64 {
            conn.query_row(&format!("PRAGMA wal_checkpoint({kind})"), [], |row| row.get(1))
                .expect("nobody reads")
        };
        for _ in 0..20 {
            conn.execute("INSERT INTO t VALUES (1)", []).expect("writable");
        }
        let pages = u32::try_from(checkpoint("PASSIVE")).expect("few");
        assert!(has_pages(&path, 1) && has_pages(&path, pages) && !has_pages(&path, pages + 1));
        checkpoint("RESTART");
        conn.execute("INSERT INTO t VALUES (1)", []).expect("writable");
        let left = u32::try_from(checkpoint("PASSIVE")).expect("few");
        assert!(left < pages);
        assert!(
            has_pages(&path, left) && !has_pages(&path, left + 1),
            "the file is as long as it was"
        );
    }
}
