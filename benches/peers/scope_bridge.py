"""The bridge for one run of a worker as Python's standard library allows it: the peer of the scope benchmark.

ThreadingHTTPServer on 127.0.0.1:0, one bearer token, a list of allowed tools, one SQLite row a call. It speaks the
handshake revision only and checks less than ours does. Driven over standard input, a word a line:

    start        a bridge; answers with {"port": …, "token": …, "us": …}
    stop         ends it; answers with {"us": …} when the port refuses
"""

import hmac
import json
import secrets
import socket
import sqlite3
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

POLL = 0.01


class Bridge:
    def __init__(self, database):
        self.token = secrets.token_hex(32)
        self.database = database
        self.lock = threading.Lock()
        self.allowed = {"note"}
        self.notes = {}
        self.tools = [
            {
                "name": "note",
                "description": "Keep a note for the rest of this run, under a name. The same name replaces it.",
                "inputSchema": {
                    "type": "object",
                    "properties": {"key": {"type": "string"}, "text": {"type": "string"}},
                    "required": ["key", "text"],
                },
            }
        ]
        bridge = self

        class Handler(BaseHTTPRequestHandler):
            disable_nagle_algorithm = True

            def log_message(self, *arguments):
                pass

            def answer(self, status, body):
                data = b"" if body is None else json.dumps(body).encode()
                self.send_response(status)
                if data:
                    self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(data)

            def do_POST(self):
                scheme, _, given = self.headers.get("Authorization", "").partition(" ")
                if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip(), bridge.token):
                    return self.answer(401, {"error": "unauthorized"})
                if self.path != "/mcp":
                    return self.answer(404, {"error": "not found"})
                message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if "id" not in message or message["method"].startswith("notifications/"):
                    return self.answer(202, None)
                result, error = bridge.reply(message["method"], message.get("params") or {})
                answer = {"jsonrpc": "2.0", "id": message["id"]}
                answer.update({"error": error} if error else {"result": result})
                self.answer(200, answer)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(POLL,))
        self.thread.start()

    def reply(self, method, params):
        if method == "initialize":
            info = {"name": "python-bridge", "version": "1"}
            return {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": info}, None
        if method == "tools/list":
            return {"tools": [tool for tool in self.tools if tool["name"] in self.allowed]}, None
        if method != "tools/call":
            return None, {"code": -32601, "message": "no such method"}
        name, arguments = params.get("name"), params.get("arguments") or {}
        if name not in self.allowed:
            self.log(name, "refused")
            return None, {"code": -32601, "message": f"tool '{name}' is not available to this agent"}
        self.notes[arguments["key"]] = arguments["text"]
        self.log(name, "allowed")
        return {"content": [{"type": "text", "text": "Noted."}]}, None

    def log(self, name, outcome):
        detail = json.dumps({"tool": name, "outcome": outcome})
        with self.lock:
            at = int(time.time() * 1000)
            self.database.execute("INSERT INTO audit VALUES (?, 'scope-call', ?)", (at, detail))

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def refused(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def main():
    database, bridge = sqlite3.connect(sys.argv[1], check_same_thread=False, isolation_level=None), None
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=NORMAL")
    database.execute("CREATE TABLE IF NOT EXISTS audit (at INTEGER, kind TEXT, detail TEXT)")
    for line in sys.stdin:
        begun = time.perf_counter()
        if line.strip() == "start":
            bridge = Bridge(database)
            told = {"port": bridge.server.server_address[1], "token": bridge.token}
            told["us"] = (time.perf_counter() - begun) * 1e6
        else:
            port = bridge.server.server_address[1]
            bridge.stop()
            while not refused(port):
                pass
            told = {"us": (time.perf_counter() - begun) * 1e6}
        print(json.dumps(told), flush=True)


main()
