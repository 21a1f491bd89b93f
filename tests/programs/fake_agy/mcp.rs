//! Servers of `mcp_config.json`, over Streamable HTTP with a handshake.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::scenario::Version;

/// A server and its tools.
pub struct Server {
    pub name: String,
    /// Names of the tools that may be called without asking.
    pub enabled: Vec<String>,
    /// What it lists.
    pub tools: Vec<String>,
    address: String,
    path: String,
    headers: Vec<(String, String)>,
    next_id: u64,
}

impl Server {
    /// All of a config root. Those that do not answer are left out, with a word on standard error.
    pub fn all(root: &Path, version: Version, delay: Duration) -> Vec<Self> {
        let Ok(bytes) = std::fs::read(root.join("config").join("mcp_config.json")) else { return Vec::new() };
        let config: Value = serde_json::from_slice(&bytes).expect("mcp_config.json is JSON");
        let mut servers = Vec::new();
        for (name, section) in config["mcpServers"].as_object().into_iter().flatten() {
            std::thread::sleep(delay);
            match Self::connect(name, section, version) {
                Ok(server) => servers.push(server),
                Err(why) => eprintln!("failed to load MCP server {name}: {why}"),
            }
        }
        servers
    }

    fn connect(name: &str, section: &Value, version: Version) -> Result<Self, String> {
        // `url` came late; `serverUrl` is known to every version.
        let url = section["serverUrl"]
            .as_str()
            .or_else(|| section["url"].as_str().filter(|_| version >= Version(1, 3, 0)))
            .ok_or("invalid configuration: no serverUrl")?;
        let rest = url.strip_prefix("http://").ok_or("only http is spoken here")?;
        let (address, path) = rest.split_once('/').ok_or("no path")?;
        let texts = |value: &Value| -> Vec<String> {
            value.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect()
        };
        // Variables in a header are sent as they stand: nobody reports that they are expanded.
        let headers = section["headers"].as_object().into_iter().flatten();
        let headers = headers.map(|(key, value)| (key.clone(), value.as_str().unwrap_or("").to_owned()));
        let mut server = Self {
            name: name.to_owned(),
            enabled: texts(&section["enabledTools"]),
            tools: Vec::new(),
            address: address.to_owned(),
            path: format!("/{path}"),
            headers: headers.collect(),
            next_id: 1,
        };
        let hello = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": { "name": "antigravity-cli", "version": "0" },
        });
        server.request("initialize", hello)?;
        server.post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        server.list()?;
        Ok(server)
    }

    /// Asks for the tools again.
    pub fn list(&mut self) -> Result<(), String> {
        let listed = self.request("tools/list", json!({}))?;
        let tools = listed["tools"].as_array().into_iter().flatten();
        self.tools = tools.filter_map(|tool| tool["name"].as_str().map(str::to_owned)).collect();
        Ok(())
    }

    /// Calls a tool. An error of the server is an answer too: its text.
    pub fn call(&mut self, tool: &str, arguments: &Value) -> String {
        match self.request("tools/call", json!({ "name": tool, "arguments": arguments })) {
            Ok(result) => {
                let parts = result["content"].as_array().into_iter().flatten();
                parts.filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n")
            }
            Err(why) => why,
        }
    }

    fn request(&mut self, method: &str, params: Value) -> Result<Value, String> {
        let id = self.next_id;
        self.next_id += 1;
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let body = self.post(&message)?;
        let mut answer: Value = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
        match answer["error"]["message"].as_str() {
            Some(text) => Err(format!("error {}: {text}", answer["error"]["code"])),
            None => Ok(answer["result"].take()),
        }
    }

    fn post(&self, message: &Value) -> Result<Vec<u8>, String> {
        let body = message.to_string();
        let mut head = format!("POST {} HTTP/1.1\r\nHost: {}\r\n", self.path, self.address);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n");
        head.push_str(&format!("Connection: close\r\nContent-Length: {}\r\n\r\n", body.len()));
        let failed = |error: std::io::Error| error.to_string();
        let mut stream = TcpStream::connect(&self.address).map_err(failed)?;
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())).map_err(failed)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).map_err(failed)?;
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or("no HTTP answer")?;
        let status = String::from_utf8_lossy(&answer[..end]).split(' ').nth(1).unwrap_or("").to_owned();
        match status.as_str() {
            "200" | "202" => Ok(answer.split_off(end + 4)),
            _ => Err(format!("HTTP {status}")),
        }
    }
}
