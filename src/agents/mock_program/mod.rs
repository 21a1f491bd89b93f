//! x
pub fn main(_a: Vec<std::ffi::OsString>) -> i32 { 0 }
