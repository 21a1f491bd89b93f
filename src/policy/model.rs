//! The grammar of a model's name, which travels in argv.

/// Whether a text can be a model name: a letter or digit, then at most 127 letters, digits and
/// `. _ : / @ [ ] -`. It can then be neither an option nor several arguments.
pub fn is_model_name(text: &str) -> bool {
    text.len() <= 128
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._:/@[]-".contains(&byte))
}
