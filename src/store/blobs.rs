//! The output of turns: one file for each stream, beside the database.
//!
//! A blob is complete once its turn's end is recorded; until then a reader sees what is there so
//! far. File names are made from checked ids only.

use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::errors::StoreError;
use super::ids::check_id;
use super::pages;
use crate::platform::private;

/// What a blob holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BlobKind {
    /// The prompt as sent to the worker.
    Prompt,
    /// The worker's standard output, raw.
    Stdout,
    /// The worker's standard error, raw.
    Stderr,
    /// The final answer.
    Answer,
    /// What the run changed, as `git apply` takes it.
    Patch,
}

impl BlobKind {
    /// The name used on the wire and as file name extension.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prompt => "prompt",
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Answer => "answer",
            Self::Patch => "patch",
        }
    }
}

impl fmt::Display for BlobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A page of a blob. All offsets and sizes are bytes of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Page {
    /// Readable text; bytes that are not UTF-8 are shown as U+FFFD.
    pub text: String,
    /// Where the page really starts: an offset inside a character is moved to its start.
    pub offset: u64,
    /// Where the next page starts; `None` at the end.
    pub next_offset: Option<u64>,
    /// Size of the blob now.
    pub total: u64,
    /// Whether the page reaches the present end.
    pub complete: bool,
}

/// The beginning and the end of a blob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Preview {
    /// The whole text, or its head, a marker line and its tail.
    pub text: String,
    /// Whether something was left out.
    pub truncated: bool,
    /// Size of the blob in bytes.
    pub total: u64,
    /// Where reading goes on to see what was left out, in bytes; `None` if nothing was.
    pub next_offset: Option<u64>,
}

/// Name of their folder in the state folder.
pub(super) const FOLDER: &str = "blobs";

/// Room kept for the marker between head and tail.
const MARKER_ROOM: usize = 64;

/// The blobs of one state folder.
#[derive(Clone, Debug)]
pub struct Blobs {
    folder: PathBuf,
}

impl Blobs {
    /// The blobs of `state_dir`. Touches nothing.
    pub fn new(state_dir: &Path) -> Self {
        Self { folder: state_dir.join(FOLDER) }
    }

    /// The file of a blob, whether it exists or not.
    ///
    /// # Errors
    /// `STORE_BAD_ID`.
    pub fn path(&self, turn: &str, kind: BlobKind) -> Result<PathBuf, StoreError> {
        check_id(turn)?;
        Ok(self.folder.join(&turn[..2]).join(format!("{turn}.{kind}")))
    }

    /// Opens an empty blob for writing, readable by its owner only.
    ///
    /// # Errors
    /// `STORE_BAD_ID`, `STORE_UNWRITABLE`, `STORE_FULL`.
    pub fn create(&self, turn: &str, kind: BlobKind) -> Result<File, StoreError> {
        let path = self.path(turn, kind)?;
        let located = |error| StoreError::from_io(&path, &error);
        if let Some(folder) = path.parent() {
            private::create_dir(folder).map_err(located)?;
        }
        private::create(&path).map_err(located)
    }

    /// Writes a whole blob, so that it survives loss of power.
    ///
    /// # Errors
    /// As [`Blobs::create`].
    pub fn write(&self, turn: &str, kind: BlobKind, bytes: &[u8]) -> Result<(), StoreError> {
        let file = self.create(turn, kind)?;
        let path = self.path(turn, kind)?;
        private::fill_durably(file, bytes).map_err(|error| {
            // A part of it must not pass for the whole.
            let _ = std::fs::remove_file(&path);
            StoreError::from_io(&path, &error)
        })
    }

    /// Removes a blob that came to nothing. One that is not there is no fault.
    pub fn remove(&self, turn: &str, kind: BlobKind) {
        if let Ok(path) = self.path(turn, kind) {
            let _ = std::fs::remove_file(path);
        }
    }

    /// Writes the final answer and returns its size. Do this before the end of the turn is
    /// recorded: a recorded end must have its answer.
    ///
    /// # Errors
    /// As [`Blobs::create`].
    pub fn write_answer(&self, turn: &str, answer: &str) -> Result<u64, StoreError> {
        self.write(turn, BlobKind::Answer, answer.as_bytes())?;
        Ok(answer.len() as u64)
    }

    /// Opens a blob for reading.
    ///
    /// # Errors
    /// `STORE_BAD_ID`, `BLOB_MISSING`.
    pub fn open(&self, turn: &str, kind: BlobKind) -> Result<File, StoreError> {
        let path = self.path(turn, kind)?;
        File::open(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => StoreError::BlobMissing { turn: turn.to_owned(), kind },
            _ => StoreError::Failed { path, detail: error.to_string() },
        })
    }

    /// Size of a blob in bytes.
    ///
    /// # Errors
    /// As [`Blobs::open`].
    pub fn size(&self, turn: &str, kind: BlobKind) -> Result<u64, StoreError> {
        Ok(self.open_sized(turn, kind)?.1)
    }

    /// The text from byte `offset` on, at most `max_bytes` of it (taken as 4 bytes to 8 MiB). Pages
    /// joined by `next_offset` are the whole text. An offset behind the end gives an empty,
    /// complete page.
    ///
    /// # Errors
    /// As [`Blobs::open`].
    pub fn read_page(
        &self,
        turn: &str,
        kind: BlobKind,
        offset: u64,
        max_bytes: usize,
    ) -> Result<Page, StoreError> {
        let (mut file, total) = self.open_sized(turn, kind)?;
        let cut = self.cut(&mut file, turn, kind, offset.min(total), max_bytes)?;
        // A file that was cut short meanwhile ends where nothing more can be read.
        let more = cut.end < total && cut.end > cut.start;
        Ok(Page {
            text: cut.text,
            offset: cut.start,
            next_offset: more.then_some(cut.end),
            total,
            complete: !more,
        })
    }

    /// The text that ends at byte `offset`, where a page begins: about `max` bytes of the file.
    ///
    /// # Errors
    /// As [`Blobs::open`].
    pub fn read_before(
        &self,
        turn: &str,
        kind: BlobKind,
        offset: u64,
        max: usize,
    ) -> Result<String, StoreError> {
        let mut file = self.open(turn, kind)?;
        let from = offset.saturating_sub(max as u64);
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(from))
            .and_then(|_| file.take(offset - from).read_to_end(&mut bytes))
            .map_err(|error| self.unreadable(turn, kind, &error))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// At most `max` bytes of text: everything, or 60 % from the head and the rest from the tail
    /// around a marker line, because a verdict usually stands at the end.
    ///
    /// # Errors
    /// As [`Blobs::open`].
    pub fn head_tail(&self, turn: &str, kind: BlobKind, max: usize) -> Result<Preview, StoreError> {
        let (mut file, total) = self.open_sized(turn, kind)?;
        if total <= max as u64 {
            let whole = self.cut(&mut file, turn, kind, 0, max)?;
            if whole.end >= total {
                return Ok(Preview { text: whole.text, truncated: false, total, next_offset: None });
            }
        }
        let room = max.saturating_sub(MARKER_ROOM);
        let head_room = room * 6 / 10;
        let tail_room = room - head_room;
        let head = self.cut(&mut file, turn, kind, 0, head_room)?;
        let tail_from = total.saturating_sub(tail_room as u64).max(head.end);
        // Three times the room, because a byte that is not UTF-8 becomes three bytes of text; the
        // surplus is taken off the front, never off the end.
        let tail = self.cut(&mut file, turn, kind, tail_from, tail_room.saturating_mul(3) + 4)?.text;
        let tail = &tail[tail.ceil_char_boundary(tail.len().saturating_sub(tail_room))..];
        let omitted = total.saturating_sub(head.end).saturating_sub(tail.len() as u64);
        let text = format!("{}\n[... {omitted} bytes left out ...]\n{tail}", head.text);
        Ok(Preview { text, truncated: true, total, next_offset: Some(head.end) })
    }

    fn open_sized(&self, turn: &str, kind: BlobKind) -> Result<(File, u64), StoreError> {
        let file = self.open(turn, kind)?;
        let size = file.metadata().map_err(|error| self.unreadable(turn, kind, &error))?.len();
        Ok((file, size))
    }

    fn cut(
        &self,
        file: &mut File,
        turn: &str,
        kind: BlobKind,
        offset: u64,
        max: usize,
    ) -> Result<pages::Cut, StoreError> {
        pages::cut(file, offset, max).map_err(|error| self.unreadable(turn, kind, &error))
    }

    fn unreadable(&self, turn: &str, kind: BlobKind, error: &std::io::Error) -> StoreError {
        let path = self.path(turn, kind).unwrap_or_else(|_| self.folder.clone());
        StoreError::Failed { path, detail: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::error::Coded as _;
    use proptest::prelude::*;

    const TURN: &str = "0a1b2c3d-0000-4000-8000-000000000001";

    fn with(bytes: &[u8]) -> (tempfile::TempDir, Blobs) {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::new(folder.path());
        blobs.write(TURN, BlobKind::Answer, bytes).unwrap();
        (folder, blobs)
    }

    #[test]
    fn pages_say_where_to_go_on_and_when_it_ends() {
        let (_folder, blobs) = with("aä€😀z".as_bytes());
        let page = |offset, max| blobs.read_page(TURN, BlobKind::Answer, offset, max).unwrap();
        let first = page(0, 4);
        assert_eq!((first.text.as_str(), first.next_offset, first.complete), ("aä", Some(3), false));
        let inside = page(4, 4);
        assert_eq!((inside.text.as_str(), inside.offset, inside.next_offset), ("€", 3, Some(6)));
        let last = page(6, 100);
        assert_eq!((last.text.as_str(), last.next_offset, last.complete), ("😀z", None, true));
        for behind in [11, 12, u64::MAX] {
            let page = page(behind, 100);
            assert_eq!(
                (page.text.as_str(), page.next_offset, page.complete, page.total),
                ("", None, true, 11)
            );
        }
    }

    #[test]
    fn a_page_near_the_end_of_fifty_megabytes_is_read_alone() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::new(folder.path());
        blobs.create(TURN, BlobKind::Stdout).unwrap().set_len(50 << 20).unwrap();
        let page = blobs.read_page(TURN, BlobKind::Stdout, (50 << 20) - 10, 4096).unwrap();
        assert_eq!((page.text.len(), page.total, page.complete), (10, 50 << 20, true));
    }

    #[test]
    fn a_missing_blob_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = Blobs::new(folder.path()).read_page(TURN, BlobKind::Stderr, 0, 10).unwrap_err();
        assert_eq!(error.doc().code, "BLOB_MISSING");
        assert!(error.to_string().contains("stderr") && error.to_string().contains(TURN));
    }

    #[test]
    fn no_path_is_made_from_anything_but_an_id() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::new(folder.path());
        for hostile in
            ["", "..", "../../etc/passwd", "/etc/passwd", "ä", &TURN.to_uppercase(), &format!("{TURN}/")]
        {
            assert_eq!(blobs.create(hostile, BlobKind::Stdout).unwrap_err().doc().code, "STORE_BAD_ID");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_preview_keeps_both_ends() {
        let middle = "m".repeat(10_000);
        let (_folder, blobs) = with(format!("HEAD{middle}VERDICT").as_bytes());
        let preview = blobs.head_tail(TURN, BlobKind::Answer, 1000).unwrap();
        assert!(preview.truncated && preview.text.len() <= 1000);
        assert!(preview.text.starts_with("HEAD") && preview.text.ends_with("VERDICT"));
        let (head, tail) = preview.text.split_once("\n[... ").unwrap();
        assert_eq!(head.len(), 561);
        assert_eq!(preview.next_offset, Some(561));
        let (omitted, tail) = tail.split_once(" bytes left out ...]\n").unwrap();
        assert_eq!(head.len() + tail.len() + omitted.parse::<usize>().unwrap(), 10_011);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_preview_never_exceeds_its_bound(bytes in prop::collection::vec(any::<u8>(), 0..600), max in 80usize..400) {
            let (_folder, blobs) = with(&bytes);
            let preview = blobs.head_tail(TURN, BlobKind::Answer, max).unwrap();
            prop_assert!(preview.text.len() <= max, "{} > {max}", preview.text.len());
            let whole = String::from_utf8_lossy(&bytes);
            prop_assert_eq!(preview.truncated, whole.len() > max);
            if !preview.truncated {
                prop_assert_eq!(preview.text, whole);
            }
        }
    }
}
