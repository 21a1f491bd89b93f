//! `agent-bridge explain`

use serde_json::json;

use super::all_codes;
use super::output::Output;
use crate::error::{Error, Exit, INVALID_ARGUMENT, Result};

/// Explain an error code: why it happens and what to do.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The code, for instance SANDBOX_AUTHORITY_DENIED; all codes if left out.
    code: Option<String>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args, output: &mut Output) -> Result<Exit> {
    let mut docs: Vec<_> = all_codes().collect();
    docs.sort_by_key(|doc| doc.code);
    if let Some(code) = &args.code {
        docs.retain(|doc| doc.code.eq_ignore_ascii_case(code));
        if docs.is_empty() {
            let near = all_codes()
                .max_by(|a, b| likeness(a.code, code).total_cmp(&likeness(b.code, code)))
                .filter(|doc| likeness(doc.code, code) > 0.8);
            let hint = match near {
                Some(doc) => format!("Did you mean `agent-bridge explain {}`?", doc.code),
                None => "Run `agent-bridge explain` to see all codes.".to_owned(),
            };
            return Err(Error::new(&INVALID_ARGUMENT, format!("there is no code {code:?}")).with_hint(hint));
        }
    }
    if args.json {
        let codes: Vec<_> = docs
            .iter()
            .map(|doc| {
                json!({ "code": doc.code, "cause": doc.cause, "remedy": doc.remedy,
                    "retryable": doc.retryable, "exitCode": doc.exit as u8 })
            })
            .collect();
        output.document("error-codes", &json!({ "codes": codes }));
    } else if args.code.is_none() {
        output.table(
            &["CODE", "CAUSE"],
            &docs.iter().map(|doc| vec![doc.code.into(), doc.cause.into()]).collect::<Vec<_>>(),
        );
    } else {
        for doc in docs {
            output.line(doc.code);
            output.wrapped(&format!("  why:    {}", doc.cause), 10);
            output.wrapped(&format!("  next:   {}", doc.remedy), 10);
            output.line(format!(
                "  retry:  {}",
                if doc.retryable { "the same request may work later" } else { "not without a change" }
            ));
            output.line(format!("  exit:   {}", doc.exit as u8));
        }
    }
    Ok(Exit::Ok)
}

fn likeness(code: &str, asked: &str) -> f64 {
    strsim::jaro_winkler(code, &asked.to_ascii_uppercase())
}
