//! What became of a copy since it was made, whoever changed it and however often: one patch.

use std::fs::{self, File};
use std::time::Duration;

use super::super::git::{Input, PLAIN_DIFF};
use super::super::patch::PatchWriter;
use super::super::tree::Room;
use super::super::watch::{Fault, Watch};
use super::super::{apart, index, record::PatchEnd};
use super::{Failure, Isolated, Setting, bench, limits, place};

/// What became of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// The patch; none if no file differs from the beginning.
    pub patch: Option<PatchEnd>,
    /// Ignored files and folders. None are copied, so whoever worked there made them.
    pub ignored: u64,
}

impl Isolated {
    /// Writes all that differs from the beginning as a patch that `git apply` takes at the top of the repository. Each
    /// file of it has one name: a file that was moved is one that is gone and one that is new.
    ///
    /// # Errors
    /// [`Failure`]; what was written is no patch then.
    pub fn write_patch(
        &self,
        setting: &Setting,
        out: &mut File,
        deadline: Duration,
        cancelled: &mut dyn FnMut() -> Option<String>,
    ) -> Result<Changes, Failure> {
        let watch = Watch::new(deadline);
        let (copy, setting) = (self.clone(), setting.clone());
        let mut own = out.try_clone().map_err(|error| Failure::Failed(error.to_string()))?;
        let written = apart(&watch, cancelled, move |watch| copy.compare(&setting, &mut own, watch));
        Ok(written?)
    }

    fn compare(&self, setting: &Setting, out: &mut File, watch: &Watch) -> Result<Changes, Fault> {
        let git = self.git(setting)?;
        let (own, there, limits) = (self.base(), self.there(), limits());
        let bench = bench(&git, &there, &own, &limits, watch);
        let known = match fs::read(&own.index) {
            Ok(bytes) => index::read(&bytes, there.id_length),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(Fault::files("cannot read", &own.index, &error)),
        };
        bench.prepare(known.as_ref())?;
        let status = bench.status(&own.index)?;
        let mut sorted = bench.sort_out(&status.differing, &status.untracked, &mut Room::new(&limits))?;
        let mut unread = status.more_untracked + status.more_differing;
        unread += u64::from(status.cut) + u64::from(status.unreadable);
        // A repository that the worker made inside: its files are in no patch.
        unread += u64::try_from(sorted.repositories.len()).unwrap_or(u64::MAX);
        let mut changes = Changes { patch: None, ignored: status.ignored };
        let trees = match sorted.add.is_empty() && sorted.remove.is_empty() {
            true => None,
            false => {
                Some(bench.two_trees(&own.index, &mut sorted)?).filter(|(before, after)| before != after)
            }
        };
        unread += u64::try_from(sorted.marked.len()).unwrap_or(u64::MAX);
        let mut writer = PatchWriter::new(out, limits.patch_bytes);
        if let Some((before, after)) = &trees {
            let ours =
                ["diff-tree", "-r", "--no-renames", "-p", "--binary", "--src-prefix=a/", "--dst-prefix=b/"];
            let args = [&ours[..], &PLAIN_DIFF, &[before, after]].concat();
            let nothing = self.nothing();
            let most = writer.room().saturating_add(1);
            let done = git.work(&place(&own, &nothing), &args, Input::default(), most, &mut writer, watch)?;
            writer.end_of_part(done.cut);
        }
        let written =
            writer.finish().map_err(|error| Fault::Files(format!("the patch cannot be written: {error}")))?;
        if trees.is_some() || unread > 0 {
            let (bytes, sha256, truncated) = (written.bytes, written.sha256, written.truncated);
            changes.patch = Some(PatchEnd { bytes, sha256, truncated, unread });
        }
        Ok(changes)
    }
}
