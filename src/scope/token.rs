//! The run's bearer token: made from the system's random source, compared in constant time, never printed.

use std::fmt;
use std::hint::black_box;

use super::ScopeError;

/// Characters of a token.
const LENGTH: usize = 64;

/// 64 hexadecimal digits that open one endpoint.
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; LENGTH]);

impl Token {
    /// A new one.
    pub(super) fn mint() -> Result<Self, ScopeError> {
        let mut random = [0_u8; LENGTH / 2];
        getrandom::fill(&mut random).map_err(|error| ScopeError::Random(error.to_string()))?;
        let mut digits = [0_u8; LENGTH];
        let digit = |value: u8| b"0123456789abcdef"[usize::from(value & 15)];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(random) {
            pair.copy_from_slice(&[digit(byte >> 4), digit(byte)]);
        }
        Ok(Self(digits))
    }

    /// For handing over to the worker, and nowhere else.
    pub fn expose(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Whether this `Authorization` header carries it. How long it takes says nothing about the token.
    pub(super) fn opens(&self, authorization: &[u8]) -> bool {
        const SCHEME: &[u8] = b"bearer ";
        let Some((scheme, rest)) = authorization.split_at_checked(SCHEME.len()) else { return false };
        let given = rest.trim_ascii();
        if !scheme.eq_ignore_ascii_case(SCHEME) || given.len() != LENGTH {
            return false;
        }
        let difference =
            self.0.iter().zip(given).fold(0_u8, |sum, (ours, theirs)| black_box(sum | (ours ^ theirs)));
        black_box(difference) == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_the_whole_token_opens_and_the_scheme_has_any_case() {
        let token = Token::mint().unwrap();
        let text = token.expose().to_owned();
        assert!(text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit()));
        let with = |text: String| token.opens(text.as_bytes());
        assert!(with(format!("Bearer {text}")) && with(format!("bEARER   {text} ")));
        for wrong in [
            String::new(),
            text.clone(),
            "Bearer ".to_owned(),
            format!("Bearer {}", &text[1..]),
            format!("Bearer {text}0"),
            format!("Basic {text}"),
            format!("Bearer, {text}"),
            format!("Bearer {}", "0".repeat(64)),
        ] {
            assert!(!with(wrong.clone()), "{wrong}");
        }
        for place in [0, 31, 63] {
            let mut other = text.clone().into_bytes();
            other[place] = if other[place] == b'a' { b'b' } else { b'a' };
            assert!(!with(format!("Bearer {}", String::from_utf8(other).unwrap())), "{place}");
        }
        assert_ne!(Token::mint().unwrap(), token);
        assert!(!format!("{token:?}").contains(&text));
    }
}
