//! Asking before something that matters: by typing what it is about, never by a lone "y".

use std::io::{IsTerminal as _, stdin};

use dialoguer::Input;

use super::output::Output;
use crate::error::Result;
use crate::release::ReleaseError;

/// Goes on only if the person at the terminal types `word`. Where nobody can be asked `yes` must have been given.
pub fn confirm(output: &mut Output, word: &str, yes: bool) -> Result<()> {
    if yes {
        return Ok(());
    }
    if !stdin().is_terminal() || !output.stderr_is_terminal {
        return Err(ReleaseError::NotConfirmed.into());
    }
    let typed = Input::<String>::new()
        .with_prompt(format!("Type {word} to go on"))
        .allow_empty(true)
        .interact_text()
        .unwrap_or_default();
    if typed.trim() == word { Ok(()) } else { Err(ReleaseError::NotConfirmed.into()) }
}

/// A length of time as a person writes it: `90s`, `15m`, `4h`, `2d`, or seconds.
pub fn parse_time(text: &str) -> std::result::Result<std::time::Duration, String> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 =
        number.parse().map_err(|_| "expected a length of time such as 90s, 15m, 4h or 2d".to_owned())?;
    let seconds = match unit {
        "" | "s" => 1,
        "m" | "min" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(format!("{unit:?} is no unit of time: use s, m, h or d")),
    };
    number
        .checked_mul(seconds)
        .filter(|seconds| *seconds <= 366 * 86_400)
        .map(std::time::Duration::from_secs)
        .ok_or_else(|| "that is longer than a year".to_owned())
}

#[cfg(test)]
mod tests {
    use super::parse_time;
    use std::time::Duration;

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, seconds) in [("0", 0), ("90s", 90), ("15m", 900), ("4h", 14_400), ("2d", 172_800)] {
            assert_eq!(parse_time(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for bad in ["", "s", "1x", "-1s", "1.5h", "400d", "99999999999999999999s", "9999999999999999999d"] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
    }
}
