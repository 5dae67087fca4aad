"""A resource that leases protect: it refuses requests with an older fencing token than it has seen.

    python3 fenced_resource.py --port 7500 --data resource.db

Each request has the header "Lease-Tokens: NAME=TOKEN, NAME=TOKEN" with all leases that its sender relies on.
The largest token of each name is in the same database as the data, and changes in the same transaction: neither a
crash nor a restart can let an older holder in.

    GET /           the value
    PUT /           sets the value
    POST /          uses the resource without changing it
    GET /history    all requests, in their order (needs no lease)
"""

import argparse
import json
import sqlite3
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SCHEMA = """
CREATE TABLE IF NOT EXISTS fences (name TEXT PRIMARY KEY, token INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS value (one INTEGER PRIMARY KEY CHECK (one = 1), value INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS history (
  number INTEGER PRIMARY KEY, sender TEXT, method TEXT, tokens TEXT, value INTEGER, accepted INTEGER);
INSERT OR IGNORE INTO value VALUES (1, 0);
"""
# Changes a row only if no larger token was stored.
FENCE = """
INSERT INTO fences VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET token = excluded.token WHERE excluded.token >= token
"""


class Resource:
    """One value, and the largest token of each lease."""

    def __init__(self, path):
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.executescript(SCHEMA)

    def act(self, sender, method, tokens, value):
        """Returns (accepted, value)."""
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            accepted = all(self._db.execute(FENCE, pair).rowcount == 1 for pair in tokens.items())
            if not accepted:
                # Also takes back the larger tokens of the other names: a refused request changes nothing.
                self._db.execute("ROLLBACK")
                self._db.execute("BEGIN IMMEDIATE")
            elif method == "PUT":
                self._db.execute("UPDATE value SET value = ?", (value,))
            (stored,) = self._db.execute("SELECT value FROM value").fetchone()
            self._db.execute(
                "INSERT INTO history (sender, method, tokens, value, accepted) VALUES (?, ?, ?, ?, ?)",
                (sender, method, json.dumps(tokens), stored if value is None else value, accepted),
            )
            self._db.execute("COMMIT")
            return accepted, stored

    def history(self):
        """All requests, in their order."""
        with self._lock:
            rows = self._db.execute(
                "SELECT sender, method, tokens, value, accepted FROM history ORDER BY number"
            ).fetchall()
        return [
            {"sender": sender, "method": method, "tokens": json.loads(tokens), "value": value, "accepted": accepted == 1}
            for sender, method, tokens, value, accepted in rows
        ]


def tokens_of(header):
    """ "a=1, b=2" as {"a": 1, "b": 2}. Raises ValueError."""
    pairs = [pair.strip().rpartition("=") for pair in header.split(",")]
    tokens = {name: int(token) for name, _, token in pairs}
    if "" in tokens or min(tokens.values()) < 1:
        raise ValueError(header)
    return tokens


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    resource = None

    def do_GET(self):
        if self.path == "/history":
            self._answer(200, self.resource.history())
        else:
            self._act()

    def do_PUT(self):
        self._act()

    def do_POST(self):
        self._act()

    def _act(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        try:
            tokens = tokens_of(self.headers.get("Lease-Tokens", ""))
            value = int(body) if self.command == "PUT" else None
        except ValueError as error:
            self._answer(400, {"detail": f"Send Lease-Tokens: NAME=TOKEN, and an integer to PUT: {error}"})
            return
        accepted, stored = self.resource.act(self.headers.get("Sender", ""), self.command, tokens, value)
        if accepted:
            self._answer(200, {"value": stored})
        else:
            self._answer(409, {"detail": "A later holder was here: stop, and acquire the lease again"})

    def _answer(self, status, body):
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass  # The history has it.


def main():
    parser = argparse.ArgumentParser(description="A resource that refuses old fencing tokens")
    parser.add_argument("--port", type=int, default=7500)
    parser.add_argument("--data", required=True, help="SQLite database of the value, the tokens and the history")
    options = parser.parse_args()
    Handler.resource = Resource(options.data)
    server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
    print(json.dumps({"url": f"http://127.0.0.1:{server.server_port}"}), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
