//! A change of a client's file as `diff -u` shows it, with what is not ours hidden: every line is where it is in the
//! file, keys and headings are in clear, other programs' values and all comments are not.

use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use super::merge::Wanted;
use super::table::Format;
use super::{edit_json, edit_toml};

/// How long two texts are compared; then the difference is right, but not the smallest.
pub(super) const DIFF_BUDGET: Duration = Duration::from_secs(2);
/// Lines around a change.
const CONTEXT: usize = 3;
/// What stands for what is not shown.
const HIDDEN: &str = "(not shown)";
/// Longest stretch of a line that is not ours; a file may be one line.
const STRETCH: usize = 160;

/// What may be seen of a text.
#[derive(Debug, Default)]
pub(super) struct Veil {
    /// Values and comments that are hidden.
    pub hidden: Vec<Range<usize>>,
    /// Our own entry, which is shown in full length.
    pub own: Vec<Range<usize>>,
    /// The tables and objects, each with its name, in the order of the text.
    pub sections: Vec<(Range<usize>, String)>,
}

impl Veil {
    /// Nothing can be told from anything.
    fn over_all(text: &str) -> Self {
        Self { hidden: std::iter::once(0..text.len()).collect(), ..Self::default() }
    }
}

/// The difference of two contents; none: there is no file. With `wanted` only what is ours is in clear; without it
/// `patch` makes the one of the other.
pub fn unified(
    format: Format,
    path: &Path,
    before: Option<&str>,
    after: Option<&str>,
    wanted: Option<&Wanted>,
) -> String {
    let (old, new) = (before.unwrap_or_default(), after.unwrap_or_default());
    let old_lines: Vec<&str> = old.split_inclusive('\n').collect();
    let new_lines: Vec<&str> = new.split_inclusive('\n').collect();
    let deadline = Some(Instant::now() + DIFF_BUDGET);
    let ops =
        similar::capture_diff_slices_deadline(similar::Algorithm::Myers, &old_lines, &new_lines, deadline);
    let groups = similar::group_diff_ops(ops, CONTEXT);
    let groups: Vec<_> =
        groups.into_iter().filter(|ops| ops.iter().any(|op| op.tag() != similar::DiffTag::Equal)).collect();
    if groups.is_empty() {
        return String::new();
    }
    let name = |side: Option<&str>| match side {
        Some(_) => path.display().to_string(),
        None => "/dev/null".to_owned(),
    };
    let mut out = format!("--- {}\n+++ {}\n", name(before), name(after));
    let (old, new) = (Side::of(format, old, wanted), Side::of(format, new, wanted));
    for ops in groups {
        let (Some(first), Some(last)) = (ops.first(), ops.last()) else { continue };
        let span = |from: Range<usize>, to: Range<usize>| match to.end - from.start {
            // Before the first line of all, or after the line that is named.
            0 => format!("{},0", from.start),
            1 => format!("{}", from.start + 1),
            count => format!("{},{count}", from.start + 1),
        };
        let old_span = span(first.old_range(), last.old_range());
        let new_span = span(first.new_range(), last.new_range());
        let changed = ops.iter().find(|op| op.tag() != similar::DiffTag::Equal).unwrap_or(first);
        let section = old.section_of(changed.old_range().start);
        out.push_str(&format!("@@ -{old_span} +{new_span} @@{section}\n"));
        for op in ops {
            if op.tag() == similar::DiffTag::Equal {
                op.old_range().for_each(|line| old.push(&mut out, ' ', line));
            } else {
                op.old_range().for_each(|line| old.push(&mut out, '-', line));
                op.new_range().for_each(|line| new.push(&mut out, '+', line));
            }
        }
    }
    out
}

/// The lines of one of the two texts.
struct Side<'a> {
    text: &'a str,
    lines: Vec<Range<usize>>,
    veil: Option<Veil>,
}

impl<'a> Side<'a> {
    fn of(format: Format, text: &'a str, wanted: Option<&Wanted>) -> Self {
        let mut at = 0;
        let lines = text.split_inclusive('\n').map(|line| {
            at += line.len();
            at - line.len()..at
        });
        let lines = lines.collect();
        // Offsets are those of the text behind a byte order mark.
        let mark = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        let veil = wanted.map(|wanted| {
            let body = &text[mark..];
            let veil = match format {
                Format::Toml => edit_toml::veil(body, wanted),
                json => edit_json::veil(body, json == Format::JsonWithComments, wanted),
            };
            let mut veil = veil.unwrap_or_else(|_| Veil::over_all(body));
            for range in veil.hidden.iter_mut().chain(&mut veil.own) {
                *range = range.start + mark..range.end + mark;
            }
            for (range, _) in &mut veil.sections {
                *range = range.start + mark..range.end + mark;
            }
            veil.hidden.sort_by_key(|range| range.start);
            veil.sections.sort_by_key(|(range, _)| range.start);
            veil
        });
        Self { text, lines, veil }
    }

    /// What a line stands in, as it follows the numbers of a place.
    fn section_of(&self, line: usize) -> String {
        let (Some(veil), Some(line)) = (&self.veil, self.lines.get(line)) else { return String::new() };
        let around = |(range, _): &&(Range<usize>, String)| range.start < line.start && range.end >= line.end;
        match veil.sections.iter().rev().find(around) {
            Some((_, name)) => format!(" {}", name.chars().take(100).collect::<String>()),
            None => String::new(),
        }
    }

    fn push(&self, out: &mut String, sign: char, line: usize) {
        let Some(range) = self.lines.get(line) else { return };
        out.push(sign);
        let whole = &self.text[range.clone()];
        let ended = whole.ends_with('\n');
        match &self.veil {
            None => out.push_str(whole.strip_suffix('\n').unwrap_or(whole)),
            Some(veil) => {
                let end = range.start + whole.trim_end_matches(['\n', '\r']).len();
                self.push_veiled(out, veil, range.start..end);
            }
        }
        out.push('\n');
        if !ended {
            out.push_str("\\ No newline at end of file\n");
        }
    }

    fn push_veiled(&self, out: &mut String, veil: &Veil, line: Range<usize>) {
        // Each stretch that is ours or not is seen for itself.
        let mut cuts = vec![line.start, line.end];
        let inside = |at: &usize| line.contains(at);
        cuts.extend(veil.own.iter().flat_map(|own| [own.start, own.end]).filter(inside));
        cuts.sort_unstable();
        for pair in cuts.windows(2) {
            let (from, to) = (pair[0], pair[1]);
            let shown = self.visible(&veil.hidden, from..to);
            let is_own = veil.own.iter().any(|own| own.start <= from && to <= own.end);
            let length = shown.chars().count();
            if is_own || length <= STRETCH {
                out.push_str(&shown);
            } else {
                let half = STRETCH / 2;
                out.extend(shown.chars().take(half));
                out.push_str(&format!(" [{} characters] ", length - 2 * half));
                out.extend(shown.chars().skip(length - half));
            }
        }
    }

    fn visible(&self, hidden: &[Range<usize>], stretch: Range<usize>) -> String {
        let mut out = String::new();
        let mut from = stretch.start;
        let first = hidden.partition_point(|range| range.end <= stretch.start);
        for range in hidden[first..].iter().take_while(|range| range.start < stretch.end) {
            if range.is_empty() || range.end <= from {
                continue;
            }
            out.push_str(self.text.get(from..range.start.max(from)).unwrap_or_default());
            out.push_str(HIDDEN);
            from = range.end.min(stretch.end);
        }
        out.push_str(self.text.get(from..stretch.end).unwrap_or_default());
        out
    }
}
