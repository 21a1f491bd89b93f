//! Who may come in: decided from the head alone, before a byte of the body is looked at.

use super::http::Head;
use super::token::Token;

/// The one path that is served.
pub(super) const PATH: &str = "/mcp";

/// A request that is turned away at the door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub status: u16,
    /// For the log.
    pub reason: &'static str,
    /// What the client is told.
    pub body: &'static str,
}

const fn refusal(status: u16, reason: &'static str, body: &'static str) -> Refusal {
    Refusal { status, reason, body }
}

const HOST: Refusal = refusal(403, "foreign_host", r#"{"error":"forbidden"}"#);
const ORIGIN: Refusal = refusal(403, "foreign_origin", r#"{"error":"forbidden"}"#);
const NOT_FOUND: Refusal = refusal(404, "wrong_path", r#"{"error":"not found"}"#);
/// No `WWW-Authenticate`: clients take that for an invitation to log in somewhere.
pub(super) const UNAUTHORIZED: Refusal = refusal(401, "wrong_token", r#"{"error":"unauthorized"}"#);
const METHOD: Refusal = refusal(405, "wrong_method", r#"{"error":"method not allowed"}"#);
const TYPE: Refusal = refusal(415, "wrong_content_type", r#"{"error":"unsupported media type"}"#);

/// Whether the request may go on to its body. A page in a browser sends an `Origin`, or after DNS rebinding the
/// name of its own host; neither is ours, whatever token it has.
pub(super) fn check(head: &Head<'_>, port: u16, token: &Token) -> Result<(), Refusal> {
    if !head.host.is_some_and(|host| is_ours(host, port)) {
        return Err(HOST);
    }
    if head.origin.is_some() {
        return Err(ORIGIN);
    }
    // Before the token: clients look for login documents without one, and take a 401 for "log in first".
    // HTTP lets a client write the whole address; then that has to be ours as well.
    let path = match head.target.strip_prefix("http://") {
        None => head.target,
        Some(rest) => match rest.find('/').map(|at| rest.split_at(at)) {
            Some((host, path)) if is_ours(host.as_bytes(), port) => path,
            _ => return Err(HOST),
        },
    };
    if path != PATH {
        return Err(NOT_FOUND);
    }
    if !head.authorization.is_some_and(|value| token.opens(value)) {
        return Err(UNAUTHORIZED);
    }
    if head.method != "POST" {
        return Err(METHOD);
    }
    let json = |value: &[u8]| {
        let kind = value.split(|b| *b == b';').next().unwrap_or_default();
        kind.trim_ascii().eq_ignore_ascii_case(b"application/json")
    };
    if !head.content_type.is_none_or(json) {
        return Err(TYPE);
    }
    Ok(())
}

/// A name of loopback with our port.
fn is_ours(host: &[u8], port: u16) -> bool {
    let Some(at) = memchr::memrchr(b':', host) else { return false };
    let (name, digits) = (&host[..at], &host[at + 1..]);
    let loopback = name == b"127.0.0.1" || name == b"[::1]" || name.eq_ignore_ascii_case(b"localhost");
    // A sign or a zero in front would parse as well.
    let plain = digits.iter().all(u8::is_ascii_digit) && digits.first() != Some(&b'0');
    let number = std::str::from_utf8(digits).ok().and_then(|text| text.parse::<u16>().ok());
    loopback && plain && number == Some(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_loopback_with_the_very_port_are_ours() {
        for host in ["127.0.0.1:8080", "localhost:8080", "LOCALHOST:8080", "[::1]:8080"] {
            assert!(is_ours(host.as_bytes(), 8080), "{host}");
        }
        for host in [
            "",
            ":8080",
            "127.0.0.1",
            "localhost",
            "127.0.0.1:80",
            "127.0.0.1:08080",
            "127.0.0.1:+8080",
            "127.0.0.1:8080 ",
            "evil.example:8080",
            "localhost.evil.example:8080",
            "evil@127.0.0.1:8080",
            "127.0.0.1.evil.example:8080",
            "127.0.0.2:8080",
            "0.0.0.0:8080",
            "::1:8080",
            "127.1:8080",
        ] {
            assert!(!is_ours(host.as_bytes(), 8080), "{host}");
        }
    }
}
