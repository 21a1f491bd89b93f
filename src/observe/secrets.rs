//! Whether a line of text holds what looks like a secret. It says yes or no and never which.

/// How known keys begin, and how many characters follow at least.
const PREFIXES: &[(&str, usize)] = &[
    ("sk-", 20),
    ("sk_live_", 16),
    ("rk_live_", 16),
    ("github_pat_", 20),
    ("ghp_", 20),
    ("gho_", 20),
    ("ghs_", 20),
    ("ghu_", 20),
    ("ghr_", 20),
    ("glpat-", 16),
    ("xoxb-", 16),
    ("xoxp-", 16),
    ("xapp-", 16),
    ("AIza", 30),
    ("AKIA", 16),
    ("ASIA", 16),
    ("ya29.", 20),
    ("hf_", 30),
    ("npm_", 30),
    ("pypi-", 30),
    ("dop_v1_", 30),
    ("shpat_", 20),
    ("SG.", 30),
    ("eyJhbGciOi", 30),
];

/// Last words of names whose values are secrets.
const NAMES: &[&str] = &[
    "password",
    "passwd",
    "pwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "api_key",
    "api-key",
    "access_key",
    "secret_key",
    "private_key",
    "auth_key",
    "client_secret",
    "credential",
    "credentials",
];

/// Parts of values that are made up.
const MADE_UP: &[&str] = &[
    "example",
    "changeme",
    "change_me",
    "placeholder",
    "your",
    "dummy",
    "fake",
    "test",
    "xxxx",
    "****",
    "....",
    "redacted",
    "<",
    "${",
    "{{",
    "%s",
    "todo",
    "none",
    "null",
    "process.env",
    "environ",
    "getenv",
];

/// Whether a line does.
pub fn looks_secret(line: &[u8]) -> bool {
    let text = String::from_utf8_lossy(line);
    is_private_key(&text) || has_known_key(&text) || has_assignment(&text) || has_url_password(&text)
}

fn is_private_key(text: &str) -> bool {
    text.find("-----BEGIN ").is_some_and(|at| {
        let rest = text.get(at..).unwrap_or_default();
        rest.find("PRIVATE KEY").is_some_and(|found| found < 60)
    })
}

fn has_known_key(text: &str) -> bool {
    PREFIXES.iter().any(|(prefix, least)| {
        text.match_indices(prefix).any(|(at, _)| {
            let before = text.get(..at).and_then(|text| text.chars().next_back());
            let tail = text.get(at + prefix.len()..).unwrap_or_default();
            let value: String = tail
                .chars()
                .take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
                .take(200)
                .collect();
            !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
                && value.len() >= *least
                && is_random(&value)
        })
    })
}

/// `name = "value"` with a name for a secret and a value that nobody would make up.
fn has_assignment(text: &str) -> bool {
    text.match_indices([':', '=']).any(|(at, _)| {
        let before =
            text.get(..at).unwrap_or_default().trim_end_matches([' ', '\t', '"', '\'', ':', '`', ')', ']']);
        let from = before.len().saturating_sub(64);
        let name = before.get(before.ceil_char_boundary(from)..).unwrap_or_default().to_ascii_lowercase();
        if !NAMES.iter().any(|known| name.ends_with(known)) {
            return false;
        }
        let after = text.get(at + 1..).unwrap_or_default().trim_start_matches([' ', '\t', '=', '>', ':']);
        let mut characters = after.chars();
        let value: String = match characters.next() {
            Some(quote @ ('"' | '\'' | '`')) => characters.take_while(|c| *c != quote).take(200).collect(),
            // Without quotes only files of settings have values, and those have no calls in them.
            Some(_) => after.chars().take_while(|c| !c.is_whitespace()).take(200).collect(),
            None => return false,
        };
        let lower = value.to_ascii_lowercase();
        value.len() >= 8
            && !value.contains(|c: char| c.is_whitespace() || matches!(c, '(' | ')' | '[' | ';'))
            && !MADE_UP.iter().any(|part| lower.contains(part))
            && is_random(&value)
    })
}

/// `scheme://user:password@host`.
fn has_url_password(text: &str) -> bool {
    text.match_indices("://").any(|(at, mark)| {
        let rest = text.get(at + mark.len()..).unwrap_or_default();
        let end = rest.find(|c: char| c.is_whitespace() || "/?#\"'<>".contains(c)).unwrap_or(rest.len());
        let authority = rest.get(..end).unwrap_or_default();
        let Some((user, _)) = authority.rsplit_once('@') else { return false };
        let Some((_, password)) = user.split_once(':') else { return false };
        let lower = password.to_ascii_lowercase();
        password.len() >= 6 && !MADE_UP.iter().any(|part| lower.contains(part)) && lower != "password"
    })
}

/// Letters and digits in a mixture that words do not have.
fn is_random(value: &str) -> bool {
    let digits = value.bytes().filter(u8::is_ascii_digit).count();
    let letters = value.bytes().filter(u8::is_ascii_alphabetic).count();
    let mut kinds: Vec<u8> = value.bytes().collect();
    kinds.sort_unstable();
    kinds.dedup();
    digits >= 1 && letters >= 2 && kinds.len() >= 6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_seen() {
        for line in [
            "-----BEGIN RSA PRIVATE KEY-----",
            "  key = \"sk-proj-ab12CD34ef56GH78ij90\"",
            "export GITHUB_TOKEN=ghp_0123456789abcdefghij0123",
            "aws_access_key_id = AKIAIOSFODNN7ABCDEFG",
            "password: 'hunter2hunter2'",
            "DB_PASSWORD=pr0ductionPass!",
            "\"client_secret\": \"a8f5f167f44f4964e6c998dee827110c\"",
            "const apiKey = `9f86d081884c7d65`;",
            "postgres://admin:s3cr3tpw@db.internal/app",
        ] {
            assert!(looks_secret(line.as_bytes()), "{line}");
        }
    }

    #[test]
    fn code_about_secrets_is_not_one() {
        for line in [
            "let token = self.next_token()?;",
            "password: String,",
            "if token == expected { return; }",
            "token = os.environ[\"TOKEN_2\"]",
            "password = \"changeme123\"",
            "api_key: ${API_KEY_1}",
            "import sk-learn",
            "class=\"sk-fading-circle1\"",
            "https://user:password@host",
            "https://host/path?x=1",
            "secret: <your-secret-1>",
            "max_tokens: 4096,",
            "",
            "\u{fffd}://:@",
        ] {
            assert!(!looks_secret(line.as_bytes()), "{line}");
        }
    }
}
