//! Commands that a person can copy and paste, whatever is in their paths.

/// A command as a person can paste it: for a POSIX shell, or PowerShell on Windows.
pub fn line<'a>(words: impl Iterator<Item = &'a str>) -> String {
    line_for(words, cfg!(windows))
}

fn line_for<'a>(words: impl Iterator<Item = &'a str>, powershell: bool) -> String {
    let line = words.map(|word| quoted(word, powershell)).collect::<Vec<_>>().join(" ");
    // PowerShell prints a quoted first word instead of running it, unless it is called.
    if powershell && line.starts_with('\'') { format!("& {line}") } else { line }
}

/// A word as a shell takes it literally: POSIX, or PowerShell on Windows.
fn quoted(word: &str, powershell: bool) -> String {
    let plain = !word.is_empty()
        && word.chars().all(|c| c.is_alphanumeric() || "-_./:+=".contains(c) || (powershell && c == '\\'))
        // PowerShell swallows a bare `--`.
        && !(powershell && word == "--");
    match (plain, powershell) {
        (true, _) => word.to_owned(),
        (false, true) => format!("'{}'", word.replace('\'', "''")),
        (false, false) => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_are_quoted_for_the_shell() {
        assert_eq!(quoted("/opt/agent-bridge", false), "/opt/agent-bridge");
        assert_eq!(quoted("/A B/it's", false), r"'/A B/it'\''s'");
        assert_eq!(quoted(r"C:\A B\it's", true), r"'C:\A B\it''s'");
        assert_eq!(quoted(r"C:\x", true), r"C:\x");
        assert_eq!(quoted("", false), "''");
        assert_eq!(quoted("$(x)", false), "'$(x)'");
    }

    #[test]
    fn powershell_runs_a_quoted_program() {
        let line = |program| line_for([program, "doctor"].into_iter(), true);
        assert_eq!(line(r"C:\A B\agent-bridge.exe"), r"& 'C:\A B\agent-bridge.exe' doctor");
        assert_eq!(line(r"C:\agent-bridge.exe"), r"C:\agent-bridge.exe doctor");
    }

    proptest! {
        /// Undoing the quotes by POSIX rules gives the word back.
        #[test]
        fn posix_quotes_can_be_undone(word in ".{0,20}") {
            let quoted = quoted(&word, false);
            let undone = match quoted.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
                Some(inner) => inner.split(r"'\''").collect::<Vec<_>>().join("'"),
                None => quoted.clone(),
            };
            prop_assert_eq!(undone, word);
        }
    }
}
