//! Client files of any dialect: what is not ours stays byte for byte, and every change can be taken back.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

use agent_bridge::release::clients::table::Format;
use agent_bridge::release::clients::{
    Hunk, Leaf, Literal, Merged, Refusal, State, Wanted, merge, remove, undo, unified,
};
use proptest::prelude::*;

/// Small random numbers from a seed, the same ones every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((x ^ (x >> 31)) % sides as u64).unwrap()
    }

    fn one_in(&mut self, sides: usize) -> bool {
        self.roll(sides) == 0
    }

    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.roll(choices.len())]
    }
}

/// A file, and those pieces of it that nobody may touch.
struct File {
    text: String,
    foreign: Vec<String>,
    has_entry: bool,
}

fn wanted(format: Format, windows: bool) -> Wanted {
    let path = |unix: &str, windows_path: &str| {
        Literal::Text(if windows { windows_path.to_owned() } else { unix.to_owned() })
    };
    let leaf = |path, value, overwrite| Leaf { path, value, overwrite };
    let mut leaves = vec![
        leaf(&["command"], path("/opt/a b/bin/agent-bridge", r"C:\Users\new\bin\agent-bridge.exe"), true),
        leaf(&["args"], Literal::Texts(vec!["serve".into()]), true),
        leaf(
            &["env", "AGENT_BRIDGE_CONFIG"],
            path("/opt/a b/config.json", r"C:\Users\new\config.json"),
            true,
        ),
    ];
    let section = match format {
        Format::Toml => {
            leaves.push(leaf(&["startup_timeout_sec"], Literal::Number(30), false));
            leaves.push(leaf(&["tool_timeout_sec"], Literal::Number(300), false));
            leaves.push(leaf(&["default_tools_approval_mode"], Literal::Text("approve".into()), true));
            "mcp_servers"
        }
        _ => {
            leaves.insert(0, leaf(&["type"], Literal::Text("stdio".into()), false));
            leaves.push(leaf(&["trust"], Literal::True, true));
            "mcpServers"
        }
    };
    Wanted::Server { section, leaves }
}

mod toml_files {
    use super::*;

    struct Maker {
        dice: Dice,
        eol: usize,
        file: File,
        count: usize,
    }

    impl Maker {
        fn eol(&mut self) -> &'static str {
            match self.eol {
                0 => "\n",
                1 => "\r\n",
                _ => ["\n", "\r\n"][self.dice.roll(2)],
            }
        }

        /// A line that must stay, of one or more lines.
        fn foreign(&mut self, line: &str) {
            let eol = self.eol();
            let line = line.replace('\n', eol);
            self.file.text.push_str(&line);
            self.file.text.push_str(eol);
            if !line.trim().is_empty() {
                self.file.foreign.push(line);
            }
        }

        fn own(&mut self, line: &str) {
            let indent = self.dice.pick(&["", "", "", "  ", "\t"]);
            let comment = self.dice.pick(&["", "", "", "  # mine"]);
            let eol = self.eol();
            self.file.text.push_str(&format!("{indent}{line}{comment}{eol}"));
        }

        fn noise(&mut self) {
            match self.dice.roll(8) {
                0 => self.foreign(""),
                1 => self.foreign("# [mcp_servers.agent-bridge] is only a comment"),
                2 => self.foreign("   "),
                _ => {}
            }
        }

        fn value(&mut self) -> &'static str {
            self.dice.pick(&[
                "1",
                "1.000000000000000000000000000001",
                "\"\\u00e9 \\\"x\\\" # no comment\"",
                "'C:\\literal\\'",
                "\"\"\"\n[mcp_servers.agent-bridge]\ncommand = 'no'\\\n \"\"quoted\"\" \"\"\"",
                "'''\n[[x]]\n# '' \n'''",
                "[ 1, 2,\n  3, # three\n]",
                "1979-05-27T07:32:00Z",
                "{ a = 1, b = { c = \"}\" } }",
                "true",
                "\"日本 👩\u{200d}💻\"",
            ])
        }

        fn key_values(&mut self, up_to: usize) {
            for _ in 0..self.dice.roll(up_to + 1) {
                self.count += 1;
                let key = format!(
                    "{}{}",
                    self.dice.pick(&["key", "\"quoted key\" . x", "a.b", "'lit'.k"]),
                    self.count
                );
                let equals = self.dice.pick(&[" = ", "=", "  =  "]);
                let value = self.value();
                self.foreign(&format!("{key}{equals}{value}"));
                self.noise();
            }
        }

        fn other_servers(&mut self) {
            for _ in 0..self.dice.roll(3) {
                self.count += 1;
                self.foreign(&format!("[mcp_servers.other{}] # theirs", self.count));
                self.foreign("command = \"agent-bridge-lookalike\"");
                if self.dice.one_in(2) {
                    self.foreign("env = { TOKEN = \"secret\" }");
                }
                self.noise();
            }
        }

        /// Keys of our own entry: each may be missing, right, stale, or the user's own.
        fn own_keys(&mut self) -> Vec<String> {
            let mut keys = Vec::new();
            let choices: [&[&str]; 6] = [
                &[
                    "",
                    "command = \"/old/agent-bridge\"",
                    "command='/opt/a b/bin/agent-bridge'",
                    "command = 'C:\\old.exe'",
                ],
                &["", "args = [\"serve\"]", "args = [\n 'mcp', # old\n]", "args=[]"],
                &["", "tool_timeout_sec = 7", "tool_timeout_sec=300"],
                &["", "enabled = true", "cwd = \"\"\"\n/x\"\"\"", "\"odd key\" = { a = [1] }"],
                &["", "default_tools_approval_mode = \"prompt\"", "default_tools_approval_mode = 'approve'"],
                &["", "startup_timeout_sec = 5"],
            ];
            for choice in choices {
                let line = self.dice.pick(choice);
                if !line.is_empty() {
                    keys.push(line.to_owned());
                }
            }
            keys
        }

        fn variables(&mut self) -> Vec<String> {
            let mut variables = Vec::new();
            for choice in [
                &[
                    "",
                    "AGENT_BRIDGE_CONFIG = \"/old/config.json\"",
                    "AGENT_BRIDGE_CONFIG='/opt/a b/config.json'",
                ][..],
                &["", "TOKEN = \"s3cret\"", "'Q K' = 'v'"],
            ] {
                let line = self.dice.pick(choice);
                if !line.is_empty() {
                    variables.push(line.to_owned());
                }
            }
            variables
        }

        fn name(&mut self) -> &'static str {
            self.dice.pick(&[
                "agent-bridge",
                "agent_bridge",
                "\"agent-bridge\"",
                "'Agent_Bridge'",
                "AGENT-BRIDGE",
            ])
        }

        fn own_tables(&mut self) {
            let name = self.name();
            self.file.has_entry = true;
            let header = self.dice.pick(&["[mcp_servers.N]", "[ mcp_servers . N ]", "  [\"mcp_servers\".N]"]);
            self.own(&header.replace('N', name));
            for line in self.own_keys() {
                self.own(&line);
            }
            let variables = self.variables();
            match self.dice.roll(4) {
                0 => {}
                1 => self.own(&format!("env = {{ {} }}", variables.join(", "))),
                2 => {
                    for variable in variables {
                        self.own(&format!("env.{variable}"));
                    }
                }
                _ => {
                    if self.dice.one_in(2) {
                        self.foreign("");
                    }
                    if self.dice.one_in(3) {
                        self.foreign("[between.tables]");
                        self.foreign("x = 1");
                    }
                    self.own(&format!("[mcp_servers.{name}.env]"));
                    for variable in variables {
                        self.own(&variable);
                    }
                }
            }
            if self.dice.one_in(4) {
                self.own(&format!("[mcp_servers.{name}.tools.x]"));
                self.own("approval_mode = \"approve\"");
            }
        }

        fn own_inline(&mut self) -> String {
            let mut members = self.own_keys();
            members.retain(|line| !line.contains('\n'));
            let variables = self.variables();
            if self.dice.one_in(2) {
                members.push(match self.dice.roll(2) {
                    0 => format!("env = {{{}}}", variables.join(",")),
                    _ => format!("env = {{ {} }}", variables.join(", ")),
                });
            }
            match self.dice.roll(3) {
                0 => format!("{{{}}}", members.join(", ")),
                1 => format!("{{ {} }}", members.join(", ")),
                _ => format!("{{ {}  }}", members.join(" , ")),
            }
        }

        fn own_dotted(&mut self, prefix: &str) {
            let mut any = false;
            for line in self.own_keys() {
                self.own(&format!("{prefix}.{line}"));
                any = true;
            }
            for variable in self.variables() {
                self.own(&format!("{prefix} . env . {variable}"));
                any = true;
            }
            if !any {
                self.own(&format!("{prefix}.enabled = true"));
            }
            self.file.has_entry = true;
        }
    }

    /// `eol`: 0 for LF, 1 for CRLF, 2 for both.
    pub fn make(seed: u64, eol: usize) -> File {
        let mut dice = Dice(seed);
        let mark = dice.one_in(4);
        let file = File { text: String::new(), foreign: Vec::new(), has_entry: false };
        let mut maker = Maker { dice, eol, file, count: 0 };
        if mark {
            maker.file.text.push('\u{feff}');
        }
        maker.noise();
        maker.key_values(3);
        let name = maker.name();
        match maker.dice.roll(10) {
            0 | 1 => {
                maker.other_servers();
            }
            2..=4 => {
                maker.other_servers();
                maker.own_tables();
                maker.noise();
                maker.other_servers();
            }
            5 => {
                maker.foreign("[mcp_servers]");
                maker.foreign("a = { command = 'x' }");
                let inline = maker.own_inline();
                maker.own(&format!("{name} = {inline}"));
                maker.file.has_entry = true;
                maker.foreign("z.command = 'x'");
            }
            6 => {
                maker.foreign("[mcp_servers]");
                maker.own_dotted(name);
                maker.foreign("b.command = 'y'");
            }
            7 => {
                maker.foreign("mcp_servers.first.command = 'x'");
                if maker.dice.one_in(2) {
                    maker.own_dotted(&format!("mcp_servers.{name}"));
                } else if maker.dice.one_in(2) {
                    let inline = maker.own_inline();
                    maker.own(&format!("mcp_servers . {name} = {inline}"));
                    maker.file.has_entry = true;
                }
            }
            8 => {
                let inline = maker.own_inline();
                let text =
                    maker.dice.pick(&["mcp_servers = { first = { command = 'x' }", "mcp_servers = {a=1"]);
                maker.file.text.push_str(text);
                maker.file.foreign.push(text.to_owned());
                if maker.dice.one_in(2) {
                    maker.file.text.push_str(&format!(", {name} = {inline}"));
                    maker.file.has_entry = true;
                }
                let text = maker.dice.pick(&["", ", last = { url = 'y' }"]);
                maker.file.text.push_str(text);
                if !text.is_empty() {
                    maker.file.foreign.push(text[1..].to_owned());
                }
                maker.file.text.push_str(" }");
                maker.foreign(" # theirs");
            }
            _ => {}
        }
        for _ in 0..maker.dice.roll(3) {
            maker.count += 1;
            let header = maker.dice.pick(&["[other]", "[[list]]", "[projects.\"/a b\"]"]);
            let header = header.replace("other", &format!("other{}", maker.count));
            let header = header.replace("a b", &format!("a b{}", maker.count));
            maker.foreign(&header);
            maker.key_values(2);
        }
        if maker.dice.one_in(3) {
            let text = maker.file.text.trim_end_matches(['\n', '\r']).to_owned();
            maker.file.text = text;
        }
        maker.file
    }
}

mod json_files {
    use super::*;

    struct Maker {
        dice: Dice,
        comments: bool,
        eol: &'static str,
        /// Indentation; none for one line.
        unit: Option<&'static str>,
        colon: &'static str,
        comma: &'static str,
        text: String,
        foreign: Vec<String>,
    }

    impl Maker {
        fn gap(&mut self, depth: usize) {
            if let Some(unit) = self.unit {
                self.text.push_str(self.eol);
                self.text.push_str(&unit.repeat(depth));
            }
        }

        fn value(&mut self) -> &'static str {
            self.dice.pick(&[
                "1",
                "123456789012345678901234567890.5e-7",
                "\"\\ud83d\"",
                "\"\\u0061 \\/ \\\" é\"",
                "null",
                "[1, {\"mcpServers\": {\"agent-bridge\": {}}}, \"x\"]",
                "{\"dup\":1,\"dup\":2}",
                "{}",
                "[]",
                "\"// no comment\"",
                "-0",
            ])
        }

        /// Members of an object, each with a flag whether it is not ours.
        fn object(&mut self, depth: usize, members: Vec<(String, bool)>) {
            self.text.push('{');
            let last = members.len().saturating_sub(1);
            let any = !members.is_empty();
            for (index, (member, foreign)) in members.into_iter().enumerate() {
                if self.comments && self.dice.one_in(6) {
                    self.gap(depth + 1);
                    let comment = self.dice.pick(&["/* , } */", "/* \"agent-bridge\": */"]);
                    self.text.push_str(comment);
                    self.foreign.push(comment.to_owned());
                }
                self.gap(depth + 1);
                self.text.push_str(&member);
                if foreign {
                    self.foreign.push(member);
                }
                if index < last {
                    self.text.push(',');
                    if self.unit.is_none() {
                        self.text.push_str(self.comma);
                    }
                } else if self.comments && self.unit.is_some() && self.dice.one_in(4) {
                    self.text.push_str(" // }, last");
                    self.foreign.push(" // }, last".to_owned());
                }
            }
            if any || self.dice.one_in(4) {
                self.gap(depth);
            }
            self.text.push('}');
        }

        fn nested(&mut self, depth: usize, members: Vec<(String, bool)>) -> String {
            let outer = std::mem::take(&mut self.text);
            self.object(depth, members);
            std::mem::replace(&mut self.text, outer)
        }
    }

    pub fn make(seed: u64, comments: bool) -> File {
        let mut dice = Dice(seed);
        let eol = dice.pick(&["\n", "\r\n"]);
        let unit = match dice.roll(4) {
            0 => None,
            1 => Some("  "),
            2 => Some("    "),
            _ => Some("\t"),
        };
        let tight = unit.is_none() && dice.one_in(2);
        let (colon, comma) = if tight { (":", "") } else { (": ", " ") };
        let mark = dice.one_in(4);
        let mut maker =
            Maker { dice, comments, eol, unit, colon, comma, text: String::new(), foreign: Vec::new() };
        let mut has_entry = false;
        let pair = |maker: &Maker, key: &str, value: &str| format!("\"{key}\"{}{value}", maker.colon);
        let mut members = Vec::new();
        for index in 0..maker.dice.roll(3) {
            let value = maker.value();
            members.push((pair(&maker, &format!("before{index}"), value), true));
        }
        if !maker.dice.one_in(3) {
            let mut servers = Vec::new();
            for index in 0..maker.dice.roll(3) {
                let value = maker.dice.pick(&[
                    "{\"command\":\"x\",\"env\":{\"TOKEN\":\"s\"}}",
                    "{}",
                    "{ \"url\" : \"y\" }",
                ]);
                servers.push((pair(&maker, &format!("other{index}"), value), true));
            }
            if maker.dice.one_in(2) {
                has_entry = true;
                let mut own = Vec::new();
                for choice in [
                    &["", "\"command\": \"/old\"", "\"command\":\"\\/opt/a b/bin/agent-bridge\""][..],
                    &["", "\"args\": [\"serve\"]", "\"args\": [ \"x\", \"y\" ]", "\"args\":[]"],
                    &["", "\"type\": \"stdio\""],
                    &["", "\"trust\": false", "\"trust\": true"],
                    &["", "\"alwaysAllow\": [\"a\", 1]"],
                ] {
                    let line = maker.dice.pick(choice);
                    if !line.is_empty() {
                        own.push((line.to_owned(), line.contains("alwaysAllow")));
                    }
                }
                if maker.dice.one_in(2) {
                    let mut variables = Vec::new();
                    for choice in [
                        &[
                            "",
                            "\"AGENT_BRIDGE_CONFIG\": \"/old\"",
                            "\"AGENT_BRIDGE_CONFIG\":\"/opt/a b/config.json\"",
                        ][..],
                        &["", "\"TOKEN\": \"s3cret\""],
                    ] {
                        let line = maker.dice.pick(choice);
                        if !line.is_empty() {
                            variables.push((line.to_owned(), line.contains("TOKEN")));
                        }
                    }
                    let env = maker.nested(3, variables);
                    own.push((pair(&maker, "env", &env), false));
                }
                let entry = maker.nested(2, own);
                let name =
                    maker.dice.pick(&["agent-bridge", "agent_bridge", "Agent-Bridge", "agent\\u002dbridge"]);
                servers.push((pair(&maker, name, &entry), false));
                if maker.dice.one_in(2) {
                    servers.push((pair(&maker, "later", "{\"command\": \"z\"}"), true));
                }
            }
            let section = maker.nested(1, servers);
            members.push((pair(&maker, "mcpServers", &section), false));
        }
        for index in 0..maker.dice.roll(3) {
            let value = maker.value();
            members.push((pair(&maker, &format!("after{index}"), value), true));
        }
        // Pieces were collected inside out; they are looked for in the order of the text.
        maker.object(0, members);
        let mut text = maker.text;
        if maker.dice.one_in(2) {
            text.push_str(eol);
        }
        if comments && maker.dice.one_in(4) {
            text = format!("// head{eol}{text}");
            maker.foreign.push("// head".into());
        }
        if mark {
            text.insert(0, '\u{feff}');
        }
        let mut foreign = maker.foreign;
        foreign.sort_by_key(|piece| text.find(piece.as_str()));
        File { text, foreign, has_entry }
    }
}

/// Whether all pieces are there, in their order, without overlap.
fn in_order(text: &str, pieces: &[String]) -> Result<(), String> {
    let mut at = 0;
    for piece in pieces {
        match text[at..].find(piece.as_str()) {
            Some(found) => at += found + piece.len(),
            None => return Err(format!("{piece:?} is not where it was")),
        }
    }
    Ok(())
}

fn all_there(text: &str, pieces: &[String]) -> Result<(), String> {
    match pieces.iter().find(|piece| text.matches(piece.as_str()).count() < 1) {
        Some(piece) => Err(format!("{piece:?} is gone")),
        None => Ok(()),
    }
}

fn holds(format: Format, file: &File, windows: bool) -> Result<(), String> {
    let wanted = wanted(format, windows);
    let before = &file.text;
    let merged = match merge(format, true, before, &wanted) {
        Ok(merged) => merged,
        Err(refusal) => return Err(format!("refused: {refusal:?}")),
    };
    if (merged.state == State::Absent) == file.has_entry {
        return Err(format!("state {:?}", merged.state));
    }
    let after = &merged.after;
    if format == Format::Toml { in_order(after, &file.foreign) } else { all_there(after, &file.foreign) }?;
    let again = merge(format, true, after, &wanted).map_err(|refusal| format!("second time: {refusal:?}"))?;
    if again.after != *after || again.state != State::Correct {
        return Err(format!("twice is not once:\n{}", again.after));
    }
    only_the_places_differ(before, after, &merged.patch)?;
    // What takes long is asked of a part of the files each, which no other choice hangs on.
    let part = before.len() % 3;
    if part == 0 {
        shown_as_a_patch(format, before, after, &wanted)?;
    }
    // Nobody touched the file since.
    match undo(format, before, after, after, &merged.patch, &wanted) {
        Some(undone) if undone == *before => {}
        other => return Err(format!("undone it is {other:?}\nafter the change it was {after:?}")),
    }
    taken_back_after_others_wrote(format, before, &merged, &wanted, part)?;
    if part == 1 {
        not_taken_back_after_our_own_was_changed(format, before, &merged, &wanted)?;
    }
    // Without the entry nothing of ours is left.
    let without =
        remove(format, after, &wanted).map_err(|refusal| format!("{refusal:?}"))?.ok_or("not found")?;
    // What stands inside the entry goes with it.
    let inside = |piece: &str| {
        ["s3cret", "alwaysAllow"].iter().any(|mark| piece.contains(mark))
            || (file.has_entry && (piece.starts_with("/*") || piece.starts_with(" //")))
    };
    let outside = |piece: &&String| !inside(piece);
    let outside: Vec<String> = file.foreign.iter().filter(outside).cloned().collect();
    all_there(&without, &outside)?;
    if format == Format::Toml && !file.has_entry && without != *before {
        return Err(format!("added and removed it is {without:?}"));
    }
    Ok(())
}

/// Between the places that the patch names both texts are the same bytes.
fn only_the_places_differ(before: &str, after: &str, patch: &[Hunk]) -> Result<(), String> {
    let (mut old, mut new) = (0, 0);
    for hunk in patch {
        if before[old..hunk.before.start] != after[new..hunk.after.start] {
            return Err(format!("bytes before {hunk:?} differ"));
        }
        if after[hunk.after.clone()] != hunk.text {
            return Err(format!("{hunk:?} is not what is there"));
        }
        (old, new) = (hunk.before.end, hunk.after.end);
    }
    if before[old..] == after[new..] { Ok(()) } else { Err("bytes after the last place differ".into()) }
}

/// The difference as it is shown is one that can be applied, with the right line numbers; and what is hidden in it
/// are pieces of its lines only.
fn shown_as_a_patch(format: Format, before: &str, after: &str, wanted: &Wanted) -> Result<(), String> {
    let path = std::path::Path::new("file");
    let clear = unified(format, path, Some(before), Some(after), None);
    let applied = apply_unified(before, &clear)?;
    if applied != after {
        return Err(format!("the difference makes {applied:?} of it:\n{clear}"));
    }
    let masked = unified(format, path, Some(before), Some(after), Some(wanted));
    let skeleton = |diff: &str| -> Vec<String> {
        let lines = diff.split('\n').map(|line| match line.chars().next() {
            Some('@') => line[..line.rfind("@@").unwrap_or_default()].to_owned(),
            Some('\\') => line.to_owned(),
            first => first.map(String::from).unwrap_or_default(),
        });
        lines.collect()
    };
    if skeleton(&masked) != skeleton(&clear) {
        return Err(format!("not the same lines:\n{masked}\n{clear}"));
    }
    for secret in
        ["s3cret", "\"secret\"", "# mine", "# theirs", "/* , } */", "C:\\literal", "[1, {", "0000001"]
    {
        if masked.contains(secret) {
            return Err(format!("{secret} is shown:\n{masked}"));
        }
    }
    Ok(())
}

/// What `patch` does, without any tolerance.
fn apply_unified(before: &str, diff: &str) -> Result<String, String> {
    let old: Vec<&str> = before.split_inclusive('\n').collect();
    let lines: Vec<&str> = diff.split_inclusive('\n').collect();
    let mut new: Vec<String> = Vec::new();
    let mut at = 0;
    let mut line = 2.min(lines.len());
    while line < lines.len() {
        let header = lines[line].strip_prefix("@@ -").ok_or(format!("no header: {:?}", lines[line]))?;
        let (from, rest) = header.split_once(" +").unwrap();
        let (to, _) = rest.split_once(" @@").unwrap();
        let span = |text: &str| -> (usize, usize) {
            let (start, count) = text.split_once(',').unwrap_or((text, "1"));
            let (start, count): (usize, usize) = (start.parse().unwrap(), count.parse().unwrap());
            (if count == 0 { start } else { start - 1 }, count)
        };
        let ((from, mut left), (to, mut right)) = (span(from), span(to));
        new.extend(old[at..from].iter().map(|line| (*line).to_owned()));
        if new.len() != to {
            return Err(format!("{} lines before a place that is said to be at {to}", new.len()));
        }
        at = from;
        line += 1;
        while left > 0 || right > 0 {
            let unended = lines.get(line + 1).is_some_and(|next| next.starts_with('\\'));
            let content = if unended { lines[line].strip_suffix('\n').unwrap() } else { lines[line] };
            let (sign, content) = content.split_at(1);
            if sign != "+" {
                if old.get(at) != Some(&content) {
                    return Err(format!("line {at} is {:?}, not {content:?}", old.get(at)));
                }
                at += 1;
                left -= 1;
            }
            if sign != "-" {
                new.push(content.to_owned());
                right -= 1;
            }
            line += if unended { 2 } else { 1 };
        }
    }
    new.extend(old[at..].iter().map(|line| (*line).to_owned()));
    Ok(new.concat())
}

/// Others change the file at its begin, at its end, at both, or write all of it anew: what they wrote stays.
fn taken_back_after_others_wrote(
    format: Format,
    before: &str,
    merged: &Merged,
    wanted: &Wanted,
    way: usize,
) -> Result<(), String> {
    type Change = fn(Format, &str) -> Option<String>;
    let changes: [(&str, bool, Change); 3] = [
        ("at its end", true, |format, text| match format {
            Format::Toml => Some(format!("{text}\n[theirs]\nx = 1\n")),
            _ => Some(format!("{text}\n\n")),
        }),
        ("at both ends", true, |format, text| {
            let mark = if text.starts_with('\u{feff}') { 3 } else { 0 };
            match format {
                Format::Toml => Some(format!("{}theirs = 1\n{}\n#", &text[..mark], &text[mark..])),
                _ => Some(format!("{}\n {}\n", &text[..mark], &text[mark..])),
            }
        }),
        ("a member of theirs", false, |format, text| match format {
            Format::Toml => {
                Some(format!("{text}\n[theirs]\nx = 1\n").replace('\n', "\r\n").replace("\r\r", "\r"))
            }
            _ => {
                let close = text.rfind('}')?;
                Some(format!("{},\"theirs\":1{}", &text[..close], &text[close..]))
            }
        }),
    ];
    let (name, exactly, change) = changes[way];
    let told = |why: String| format!("{name}: {why}");
    let Some(theirs) = change(format, &merged.after) else { return Ok(()) };
    if !merge(format, true, &theirs, wanted).is_ok_and(|one| one.state == State::Correct) {
        return Ok(());
    }
    let undone = undo(format, before, &merged.after, &theirs, &merged.patch, wanted)
        .ok_or_else(|| told(format!("cannot be taken back\n{theirs}")))?;
    // Without a last line end their text and ours share a line.
    let exactly = exactly && (format != Format::Toml || before.ends_with('\n'));
    if exactly && Some(&undone) != change(format, before).as_ref() {
        return Err(told(format!("{undone:?}\nis not what they would have made of the old file")));
    }
    if theirs.contains("theirs") != undone.contains("theirs") {
        return Err(told("their change is gone".into()));
    }
    let state = merge(format, true, &undone, wanted).map_err(|why| told(format!("{why:?}")))?.state;
    if state != merged.state {
        return Err(told(format!("{state:?} after undoing, {:?} before\n{undone}", merged.state)));
    }
    Ok(())
}

/// What we wrote was changed by somebody: then it is his.
fn not_taken_back_after_our_own_was_changed(
    format: Format,
    before: &str,
    merged: &Merged,
    wanted: &Wanted,
) -> Result<(), String> {
    for (written, other) in [("bin/agent-bridge", "bin/another"), ("config.json", "other.json")] {
        let Some(place) = merged.patch.iter().find_map(|hunk| {
            let at = hunk.text.find(written)?;
            Some(hunk.after.start + at)
        }) else {
            continue;
        };
        let mut theirs = merged.after.clone();
        theirs.replace_range(place..place + written.len(), other);
        let undone = undo(format, before, &merged.after, &theirs, &merged.patch, wanted);
        if undone.is_some() {
            return Err(format!("{other} was taken back to {undone:?}"));
        }
    }
    Ok(())
}

/// How many files each test makes; all of them can be given more with `CLIENT_FILE_CASES`.
fn cases(usually: u32) -> ProptestConfig {
    let asked = std::env::var("CLIENT_FILE_CASES").ok().and_then(|text| text.parse().ok());
    let cases = asked.unwrap_or(usually);
    ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 0, ..ProptestConfig::default() }
}

fn toml_holds(seed: u64, eol: usize, windows: bool) -> Result<(), TestCaseError> {
    let file = toml_files::make(seed, eol);
    holds(Format::Toml, &file, windows)
        .map_err(|why| TestCaseError::fail(format!("{why}\nof the file\n{}", shown(&file.text))))
}

fn shown(text: &str) -> String {
    text.split_inclusive('\n').map(|line| format!("    {line:?}\n")).collect()
}

proptest! {
    #![proptest_config(cases(2_500))]

    #[test]
    fn toml_keeps_every_foreign_byte(seed in any::<u64>(), windows in any::<bool>()) {
        toml_holds(seed, 0, windows)?;
    }

    #[test]
    fn toml_with_carriage_returns_keeps_every_foreign_byte(seed in any::<u64>(), windows in any::<bool>()) {
        toml_holds(seed, 1, windows)?;
    }

    #[test]
    fn toml_with_mixed_line_ends_keeps_every_foreign_byte(seed in any::<u64>(), windows in any::<bool>()) {
        toml_holds(seed, 2, windows)?;
    }
}

proptest! {
    #![proptest_config(cases(6_500))]

    #[test]
    fn json_keeps_every_foreign_byte(seed in any::<u64>(), windows in any::<bool>()) {
        let file = json_files::make(seed, false);
        if let Err(why) = holds(Format::Json, &file, windows) {
            prop_assert!(false, "{why}\nof the file\n{}", shown(&file.text));
        }
    }

    #[test]
    fn json_with_comments_keeps_every_foreign_byte(seed in any::<u64>(), windows in any::<bool>()) {
        let file = json_files::make(seed, true);
        if let Err(why) = holds(Format::JsonWithComments, &file, windows) {
            prop_assert!(false, "{why}\nof the file\n{}", shown(&file.text));
        }
    }

    #[test]
    fn no_text_at_all_makes_it_stumble(text in "\\PC{0,80}", windows in any::<bool>()) {
        for format in [Format::Toml, Format::Json, Format::JsonWithComments] {
            let wanted = wanted(format, windows);
            match merge(format, true, &text, &wanted) {
                Ok(merged) => {
                    let (after, patch) = (&merged.after, &merged.patch);
                    prop_assert_eq!(undo(format, &text, after, after, patch, &wanted), Some(text.clone()));
                }
                Err(Refusal::Broken(_) | Refusal::Unsupported(_) | Refusal::Ambiguous(_)) => {}
            }
        }
    }
}

/// Files that generated ones stumbled over.
#[test]
fn files_that_were_once_refused_or_changed_too_much() {
    for text in [
        "mcp_servers.first.command = 'x'\r\nmcp_servers.'Agent_Bridge'.startup_timeout_sec = 5",
        "a = 1\n\n\n",
    ] {
        let has_entry = text.contains("Agent_Bridge");
        let file = File { text: text.to_owned(), foreign: Vec::new(), has_entry };
        holds(Format::Toml, &file, false).unwrap();
    }
}

/// The same with the program itself, for some files.
#[test]
#[cfg(unix)]
fn patch_makes_the_result_of_what_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let mut applied = 0;
    for seed in 0..60 {
        for (format, file) in [
            (Format::Toml, toml_files::make(seed, usize::try_from(seed).unwrap() % 3)),
            (Format::JsonWithComments, json_files::make(seed, true)),
        ] {
            let after = merge(format, true, &file.text, &wanted(format, false)).unwrap().after;
            let path = folder.path().join("file");
            let diff = unified(format, &path, Some(&file.text), Some(&after), None);
            std::fs::write(&path, &file.text).unwrap();
            let difference = folder.path().join("difference");
            std::fs::write(&difference, &diff).unwrap();
            let mut patch = std::process::Command::new("patch");
            patch.args(["--binary", "--silent", "--fuzz=0"]).arg(&path).arg(&difference);
            match patch.output() {
                // A machine without the program has the strict reader of the tests above.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
                Err(error) => panic!("{error}"),
                Ok(_) if diff.is_empty() => continue,
                Ok(done) => {
                    assert!(done.status.success(), "{}\n{diff}", String::from_utf8_lossy(&done.stdout))
                }
            }
            assert_eq!(std::fs::read_to_string(&path).unwrap(), after, "{diff}");
            applied += 1;
        }
    }
    assert!(applied > 60, "{applied}");
}
