//! The one sanitiser for text that leaves the bridge: terminal codes out, secrets out, one line on request.

use crate::process::strip_terminal;

/// What stands in for a secret.
pub const MARK: &str = "[redacted]";

/// Known shapes of keys: prefix and the least number of characters after it.
const TOKEN_PREFIXES: &[(&str, usize)] = &[
    ("sk-", 4),
    ("github_pat_", 8),
    ("ghp_", 8),
    ("gho_", 8),
    ("ghs_", 8),
    ("ghu_", 8),
    ("glpat-", 8),
    ("xoxb-", 8),
    ("xoxp-", 8),
    ("AIza", 16),
    ("AKIA", 12),
    ("ASIA", 12),
    ("ya29.", 8),
    ("hf_", 16),
    ("npm_", 16),
    ("pypi-", 16),
    ("eyJ", 24),
];

/// Query parameters that carry credentials.
const QUERY_KEYS: &[&str] = &[
    "key",
    "api_key",
    "api-key",
    "apikey",
    "token",
    "access_token",
    "refresh_token",
    "id_token",
    "auth",
    "code",
    "password",
    "secret",
    "client_secret",
    "sig",
    "signature",
    "x-amz-signature",
    "x-amz-credential",
    "x-amz-security-token",
    "x-goog-signature",
];

/// No name in [`QUERY_KEYS`] is longer, in bytes.
const LONGEST_QUERY_KEY: usize = 24;

/// A secret's name stands in its last words: no more of it is looked at, in bytes.
const LONGEST_NAME: usize = 96;

/// Longest text that is made into one line, in bytes; the rest is not looked at.
const LONGEST_SOURCE: usize = 256 << 10;

/// Terminal codes and everything that looks like a secret are taken out; line breaks stay.
pub fn redact(text: &str) -> String {
    let text = strip_terminal(text);
    let text = private_keys(text);
    let text = assignments(&text);
    let text = schemes(&text);
    let text = url_parts(&text);
    let text = login_addresses(&text);
    prefixed_tokens(&text)
}

/// [`redact`] for a piece of a longer text, given what stands around it: a secret that the piece cuts does
/// not come through because its beginning or its end is missing here.
pub fn redact_within(before: &str, text: &str, after: &str) -> String {
    let whole = redact(&format!("{before}{text}{after}"));
    // Where the reading of a side alone and that of the whole part, something that crosses the border was
    // taken out.
    let common = |a: &mut dyn Iterator<Item = char>, b: &mut dyn Iterator<Item = char>| -> usize {
        a.zip(b).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum()
    };
    let start = common(&mut redact(before).chars(), &mut whole.chars());
    let end = whole.len() - common(&mut redact(after).chars().rev(), &mut whole.chars().rev());
    whole[start..end.max(start)].to_owned()
}

/// Like [`redact`], and each known secret value is taken out too, also where it is escaped for JSON
/// (once or twice) or percent-encoded. Values under four bytes are ignored.
pub fn redact_values(text: &str, values: &[&str]) -> String {
    redact(&mask_values(text, values))
}

/// Only the known secret values are taken out; everything else stays as it is. For answers, which may
/// talk about tokens without holding one.
pub fn mask_values(text: &str, values: &[&str]) -> String {
    let mut text = text.to_owned();
    for form in forms_of(values) {
        if text.contains(form.as_str()) {
            text = text.replace(form.as_str(), MARK);
        }
    }
    text
}

/// Every spelling in which a value may turn up, longest first: a short form may be a part of a longer one.
pub fn forms_of(values: &[&str]) -> Vec<String> {
    let mut forms: Vec<String> = Vec::new();
    for value in values.iter().filter(|value| value.len() >= 4) {
        let once = json_escaped(value);
        forms.push(json_escaped(&once));
        forms.push(once.replace('/', "\\/"));
        forms.push(once);
        forms.push(percent_encoded(value));
        forms.push((*value).to_owned());
    }
    forms.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    forms.dedup();
    forms
}

/// One clean line of at most `max_chars` characters: redacted, white space collapsed, clipped with `…`.
/// Of a huge text only the first 256 KiB are looked at.
pub fn one_line(text: &str, max_chars: usize) -> String {
    let text = redact(&text[..text.floor_char_boundary(LONGEST_SOURCE)]);
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        // No need to join what will be cut.
        if line.len() > max_chars.saturating_mul(4) {
            break;
        }
    }
    clip(&line, max_chars)
}

/// At most `max_chars` characters, the last one `…` if something was cut.
pub fn clip(text: &str, max_chars: usize) -> String {
    if text.chars().nth(max_chars).is_none() {
        return text.to_owned();
    }
    text.chars().take(max_chars.saturating_sub(1)).chain(std::iter::once('…')).collect()
}

fn json_escaped(value: &str) -> String {
    let quoted = serde_json::Value::from(value).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

fn percent_encoded(value: &str) -> String {
    value
        .bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

/// `-----BEGIN … PRIVATE KEY-----` to its end.
fn private_keys(text: String) -> String {
    const BEGIN: &str = "-----BEGIN ";
    if !text.contains(BEGIN) {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find(BEGIN) {
        let (before, block) = rest.split_at(at);
        out.push_str(before);
        let header = block.get(..block.floor_char_boundary(80)).unwrap_or(block);
        if !header.contains("PRIVATE KEY") {
            out.push_str(BEGIN);
            rest = &block[BEGIN.len()..];
            continue;
        }
        out.push_str(MARK);
        let end = block.find("-----END ").and_then(|end| {
            let tail = &block[end + 9..];
            tail.find("-----").map(|close| end + 9 + close + 5)
        });
        rest = end.map_or("", |end| &block[end..]);
    }
    out.push_str(rest);
    out
}

/// Whether a name stands for a secret: its last words are `token`, `secret`, `api key` and so on.
fn is_secret_name(name: &str) -> bool {
    let name = &name[name.ceil_char_boundary(name.len().saturating_sub(LONGEST_NAME))..];
    let mut words: Vec<String> = Vec::new();
    let mut previous = ' ';
    for c in name.chars() {
        if !c.is_alphanumeric() {
            previous = ' ';
            continue;
        }
        if !previous.is_alphanumeric() || (previous.is_lowercase() && c.is_uppercase()) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.extend(c.to_lowercase());
        }
        previous = c;
    }
    let last = words.last().map_or("", String::as_str);
    let before = words.len().checked_sub(2).map_or("", |at| words[at].as_str());
    matches!(last, "token" | "secret" | "password" | "passwd" | "authorization" | "apikey" | "cookie")
        || (last == "key" && matches!(before, "api" | "access" | "private" | "secret" | "auth"))
}

/// `name: value`, `name=value`, `"name": "value"` where the name stands for a secret.
fn assignments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut copied = 0;
    for (at, c) in text.char_indices() {
        if at < copied || (c != ':' && c != '=') {
            continue;
        }
        let name = name_before(&text[copied..at]);
        if !is_secret_name(name) {
            continue;
        }
        let after = &text[at + 1..];
        let lead = after.len() - after.trim_start_matches([' ', '\t', '\\', '"', '\'', '`']).len();
        let opening: String =
            after[..lead].chars().filter(|c| matches!(c, '"' | '\'' | '`')).take(1).collect();
        let body = &after[lead..];
        let whole_line = opening.is_empty() && name.to_lowercase().ends_with("authorization");
        let end = body
            .find(|c: char| match opening.chars().next() {
                Some(quote) => c == quote || c == '\\' || c == '\n',
                None if whole_line => matches!(c, '\n' | '"' | '\''),
                None => c.is_whitespace() || matches!(c, ',' | ';' | '&' | '}' | ')' | '"' | '\''),
            })
            .unwrap_or(body.len());
        let value = &body[..end];
        let harmless = value.is_empty()
            || matches!(value, "null" | "true" | "false" | "none" | MARK)
            || (value.len() < 8 && value.bytes().all(|byte| byte.is_ascii_digit()));
        if harmless || value.starts_with("//") {
            continue;
        }
        let value_at = at + 1 + lead;
        out.push_str(&text[copied..value_at]);
        out.push_str(MARK);
        copied = value_at + end;
    }
    out.push_str(&text[copied..]);
    out
}

/// The name that ends this text, quotes and blanks around it ignored. `api key` counts as one name.
fn name_before(text: &str) -> &str {
    let text = text.trim_end_matches([' ', '\t', '"', '\'', '`', '\\']);
    let word_start = |text: &str| {
        text.char_indices()
            .rev()
            .take_while(|(_, c)| c.is_alphanumeric() || matches!(c, '_' | '-'))
            .last()
            .map_or(text.len(), |(at, _)| at)
    };
    let start = word_start(text);
    let before = text[..start].trim_end_matches(' ');
    if before.len() < start && start < text.len() { &text[word_start(before)..] } else { &text[start..] }
}

/// `Bearer TOKEN` and `Basic TOKEN` without a name in front.
fn schemes(text: &str) -> String {
    scheme_pass(&scheme_pass(text, "bearer"), "basic")
}

fn scheme_pass(text: &str, scheme: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let mut out = String::with_capacity(text.len());
    let mut copied = 0;
    for (at, _) in lower.match_indices(scheme) {
        let end = at + scheme.len();
        if at < copied || text[..at].chars().next_back().is_some_and(char::is_alphanumeric) {
            continue;
        }
        let after = &text[end..];
        let lead = after.len() - after.trim_start_matches([' ', '\t', ':']).len();
        if lead == 0 {
            continue;
        }
        let token_len = after[lead..]
            .find(|c: char| !(c.is_ascii_alphanumeric() || "._~+/=-".contains(c)))
            .unwrap_or(after.len() - lead);
        let token = &after[lead..lead + token_len];
        let plain_word = token.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'.');
        if token.len() < 6 || (plain_word && token.len() < 16) {
            continue;
        }
        out.push_str(&text[copied..end + lead]);
        out.push_str(MARK);
        copied = end + lead + token_len;
    }
    out.push_str(&text[copied..]);
    out
}

/// User information and credential parameters of URLs.
fn url_parts(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut copied = 0;
    for (at, found) in text.match_indices(['/', '?', '&']) {
        if at < copied {
            continue;
        }
        let start = at + found.len();
        let after = &text[start..];
        if found == "/" {
            if !text[..at].ends_with(":/") {
                continue;
            }
            let end =
                after.find(|c: char| c.is_whitespace() || "/?#\"'<>".contains(c)).unwrap_or(after.len());
            if let Some(user_end) = after[..end].rfind('@').filter(|at| *at > 0) {
                out.push_str(&text[copied..start]);
                out.push_str(MARK);
                copied = start + user_end;
            }
            continue;
        }
        // No further than a name can be long: a text of nothing but `&` would take for ever.
        let name_end = after.floor_char_boundary(LONGEST_QUERY_KEY + 1);
        let Some(equals) = after[..name_end].find('=') else { continue };
        if !QUERY_KEYS.contains(&after[..equals].to_ascii_lowercase().as_str()) {
            continue;
        }
        let value = &after[equals + 1..];
        let end = value.find(|c: char| c.is_whitespace() || "&#\"'<>)\\".contains(c)).unwrap_or(value.len());
        if end > 0 {
            out.push_str(&text[copied..start + equals + 1]);
            out.push_str(MARK);
            copied = start + equals + 1 + end;
        }
    }
    out.push_str(&text[copied..]);
    out
}

/// Addresses at which a login is asked for: who opens one from a chat logs in for somebody else. Host and path stay.
fn login_addresses(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut copied, mut looked) = (0, 0);
    for (at, found) in text.match_indices("://") {
        let start = at + found.len();
        // Another one within the same address belongs to it.
        if start < looked {
            continue;
        }
        let rest = &text[start..];
        let end = rest.find(|c: char| c.is_whitespace() || "\"'<>)\\".contains(c)).unwrap_or(rest.len());
        looked = start + end;
        let Some((place, query)) = rest[..end].split_once('?') else { continue };
        if !query.is_empty() && place.contains("/oauth") {
            out.push_str(&text[copied..=start + place.len()]);
            out.push_str(MARK);
            copied = looked;
        }
    }
    out.push_str(&text[copied..]);
    out
}

/// Keys that are known by how they begin.
fn prefixed_tokens(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut copied = 0;
    let mut previous = ' ';
    for (at, c) in text.char_indices() {
        let boundary = !previous.is_alphanumeric();
        previous = c;
        if at < copied || !boundary {
            continue;
        }
        let rest = &text[at..];
        let Some((prefix, least)) = TOKEN_PREFIXES.iter().find(|(prefix, _)| rest.starts_with(prefix)) else {
            continue;
        };
        let tail = &rest[prefix.len()..];
        // Masked keys (`sk-abc***xyz`) still show real characters.
        let length = tail
            .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '*' | '…')))
            .unwrap_or(tail.len());
        let length = tail[..length].trim_end_matches('.').len();
        if length >= *least {
            out.push_str(&text[copied..at]);
            out.push_str(MARK);
            copied = at + prefix.len() + length;
        }
    }
    out.push_str(&text[copied..]);
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn secrets_of_every_known_shape_are_taken_out() {
        for (text, secret) in [
            ("Authorization: Bearer abc.def-123", "abc.def"),
            ("authorization=Basic dXNlcjpwYXNzd29yZA==", "dXNlcjpw"),
            ("got bearer XyZ12345 here", "XyZ12345"),
            ("Incorrect API key provided: sk-proj-abc_DEF123.", "abc_DEF"),
            ("API key configured - sk-fake-***67890", "67890"),
            ("api key: hunter2hunter2", "hunter2"),
            ("OPENAI_API_KEY=hunter2", "hunter2"),
            ("{\"accessToken\":\"hunter2\",\"x\":1}", "hunter2"),
            ("{\\\"access_token\\\": \\\"hunter2\\\"}", "hunter2"),
            ("password = 'hunter2'", "hunter2"),
            ("https://user:hunter2@example.test/x", "hunter2"),
            ("https://example.test/x?a=1&access_token=hunter2&b=2", "hunter2"),
            ("https://example.test/x?key=hunter2", "hunter2"),
            ("visit https://accounts.google.com/o/oauth2/auth?client_id=hunter2&state=x now", "hunter2"),
            ("{\"url\":\"https://example.test/oauth/authorize?user_code=hunter2\"}", "hunter2"),
            ("ghp_0123456789abcdefghij", "0123456789"),
            ("-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----", "hunter2"),
            ("x-api-key: hunter2", "hunter2"),
            ("tok\u{1b}[0men=hunter2", "hunter2"),
        ] {
            let clean = redact(text);
            assert!(!clean.contains(secret), "{text} -> {clean}");
            assert!(clean.contains(MARK), "{text} -> {clean}");
        }
    }

    #[test]
    fn ordinary_text_stays_as_it_is() {
        for text in [
            "input_tokens: 1234, output token maximum",
            "a basic functionality test of the bearer protocol",
            "https://example.test/path?page=2&sort=asc",
            "https://example.test/oauth2/docs and /oauth2?",
            "the task-force said: ok",
            "\"token\": null",
            "max_token = 128",
            "Reading additional input from stdin...",
            "key = value",
            "user@example.test",
        ] {
            assert_eq!(redact(text), text);
        }
    }

    #[test]
    fn a_secret_that_is_cut_into_pieces_does_not_come_through() {
        let text = "a key: hunter2hunter2, sk-proj-0123456789 https://u:pass99@h.test/x é end";
        for size in 1..20 {
            let mut all = String::new();
            for from in (0..text.len()).step_by(size) {
                let [from, to] = [from, from + size].map(|at| text.ceil_char_boundary(at));
                all.push_str(&redact_within(&text[..from], &text[from..to], &text[to..]));
            }
            assert!(!all.contains("345") && !all.contains("ss9"), "{size}: {all}");
            assert!(all.starts_with("a key") && all.ends_with("/x é end"), "{size}: {all}");
        }
        assert_eq!(redact_within("", "plain", ""), "plain");
        assert_eq!(redact_within("aa", "a", "aa"), "a");
    }

    #[test]
    fn what_surrounds_a_secret_stays() {
        assert_eq!(
            redact("GET https://u:p@host.test/a?token=x1&b=2 failed, token: abc123!, retry"),
            "GET https://[redacted]@host.test/a?token=[redacted]&b=2 failed, token: [redacted], retry"
        );
    }

    #[test]
    fn known_values_go_in_every_escaped_form() {
        let secret = "p\"a/s\\s w+rd";
        let once = serde_json::to_string(secret).unwrap();
        let twice = serde_json::to_string(&once).unwrap();
        let text = format!("raw {secret} json {once} nested {twice} url {}", percent_encoded(secret));
        let clean = redact_values(&text, &[secret]);
        assert!(!clean.contains("w+rd") && !clean.contains("w%2Brd"), "{clean}");
    }

    #[test]
    fn terminal_codes_disappear_and_cannot_hide_more_than_a_line() {
        assert_eq!(
            strip_terminal("\u{1b}[1;31mred\u{1b}[0m \u{1b}]0;title\u{7}ok\r\nnext\u{8}"),
            "red ok\nnext"
        );
        assert_eq!(strip_terminal("\u{1b}]8;;never ends\nvisible"), "\nvisible");
        assert_eq!(strip_terminal("a\u{202e}b\u{9b}31mc"), "abc");
    }

    #[test]
    fn hostile_text_takes_time_in_proportion_to_its_length() {
        // Each pass meets its starting mark at every step and never finds the end that it looks for.
        for piece in [
            "&",
            "?",
            "&é",
            "bearer.",
            "token=",
            "a-",
            "://",
            "sk-.",
            "\"=",
            "-----BEGIN ",
            ": \\",
            "\u{1b}]",
        ] {
            let cost = |length: usize| {
                let text = piece.repeat(length / piece.len());
                let began = std::time::Instant::now();
                redact(&text);
                began.elapsed()
            };
            // Eight times the text: about eight times the work, or sixty-four times where it is the square.
            let (short, long) = (cost(16 << 10), cost(128 << 10));
            assert!(
                long < short * 24 + std::time::Duration::from_millis(100),
                "{piece:?}: {short:?} for 16 KiB, {long:?} for 128 KiB"
            );
        }
    }

    #[test]
    fn a_line_is_one_clipped_line() {
        assert_eq!(one_line("  a\n\tb   c ", 80), "a b c");
        assert_eq!(one_line("abcdef", 4), "abc…");
        assert_eq!(one_line("abcd", 4), "abcd");
    }

    proptest! {
        #[test]
        fn never_panics_and_is_stable(text in "\\PC{0,80}|[a-z:=?&/@\"\\\\ .]{0,80}|((bearer|token|://|/oauth|sk-|api key|[:=@?&\"]|[a-z0-9]{1,9}|é| ){0,16})") {
            let once = redact(&text);
            prop_assert_eq!(redact(&once), once.clone());
            prop_assert!(one_line(&text, 20).chars().count() <= 20);
        }

        #[test]
        fn a_known_value_never_survives(before in "[a-z ]{0,20}", secret in "[!-~]{8,24}", after in "[a-z ]{0,20}") {
            let text = format!("{before}{secret}{after} {}", serde_json::Value::from(secret.as_str()));
            prop_assert!(!redact_values(&text, &[&secret]).contains(&secret));
        }
    }
}
