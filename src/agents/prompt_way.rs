//! How a prompt gets to a worker.

use serde::{Deserialize, Serialize};
use serde_json::json;

/// Where a CLI reads its prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptWay {
    /// On standard input, as it is.
    #[default]
    StandardInput,
    /// On standard input, as one line of JSON in the form of a chat message.
    UserLine {
        /// The member that says that it is the user's.
        key: String,
    },
    /// In the last argument, for want of anything better: it is seen in process lists.
    LastArgument {
        /// What it is glued to.
        flag: String,
    },
}

impl PromptWay {
    /// What is written to standard input, which is then closed. May add an argument.
    pub fn deliver(&self, prompt: String, args: &mut Vec<String>) -> String {
        match self {
            Self::StandardInput => prompt,
            Self::UserLine { key } => {
                let content = json!([{ "type": "text", "text": prompt }]);
                let line = json!({ key: "user", "message": { "role": "user", "content": content } });
                format!("{line}\n")
            }
            Self::LastArgument { flag } => {
                args.push(format!("{flag}{prompt}"));
                String::new()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_delivered_whole_and_breaks_out_of_nothing() {
        let prompt = "a \"b\"\n-p=x \u{2028}";
        let deliver = |way: PromptWay| {
            let mut args = vec!["--x".to_owned()];
            (way.deliver(prompt.into(), &mut args), args)
        };
        assert_eq!(deliver(PromptWay::StandardInput), (prompt.to_owned(), vec!["--x".to_owned()]));
        let (line, args) = deliver(PromptWay::UserLine { key: "event".into() });
        assert_eq!((line.matches('\n').count(), args.len()), (1, 1));
        assert!(
            serde_json::from_str::<serde_json::Value>(&line)
                .is_ok_and(|line| line["event"] == "user" && line["message"]["content"][0]["text"] == prompt)
        );
        let (stdin, args) = deliver(PromptWay::LastArgument { flag: "-p=".into() });
        assert_eq!((stdin.as_str(), args.last()), ("", Some(&format!("-p={prompt}"))));
    }
}
