"""A stand-in for a model, for trying things offline: it follows three rules and knows nothing.

    python model_server.py --port 8765

It speaks OpenAI's chat completions, streamed. To "Remember …" it asks for the tool keep_note, to "What …?" for
read_notes; to what a tool answered, and to everything else, it answers with a sentence.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def deltas(messages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """What the "model" says to these messages, in pieces."""
    last = messages[-1]
    said = str(last.get("content"))
    asked = sum(message["role"] == "user" for message in messages)
    if last["role"] == "tool":
        yield from words(
            f"Done: {said}." if said.startswith("note") else f"You told me: {', '.join(json.loads(said))}."
        )
    elif said.startswith("Remember "):
        yield tool("keep_note", text=said.removeprefix("Remember ").rstrip("."))
    elif said.startswith("What "):
        yield tool("read_notes")
    else:
        yield from words(f"This is what you have said {asked} times to a script.")


def words(text: str) -> Iterator[dict[str, Any]]:
    for number, word in enumerate(text.split(" ")):
        yield {"content": word if number == 0 else f" {word}"}


def tool(name: str, **arguments: str) -> dict[str, Any]:
    call = {"name": name, "arguments": json.dumps(arguments)}
    return {"tool_calls": [{"index": 0, "id": f"call-{name}", "type": "function", "function": call}]}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        pieces = list(deltas(body["messages"]))
        for piece in pieces:
            self.send(choices=[{"index": 0, "delta": {"role": "assistant", **piece}, "finish_reason": None}])
        end = "tool_calls" if "tool_calls" in pieces[-1] else "stop"
        self.send(choices=[{"index": 0, "delta": {}, "finish_reason": end}])
        used = {"prompt_tokens": len(json.dumps(body["messages"])) // 4, "completion_tokens": len(pieces)}
        self.send(choices=[], usage={**used, "total_tokens": sum(used.values())})
        self.wfile.write(b"data: [DONE]\n\n")

    def send(self, **more: Any) -> None:
        event = {"id": "scripted", "object": "chat.completion.chunk", "created": 0, "model": "scripted", **more}
        self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        self.wfile.flush()

    def log_message(self, *_: Any) -> None:
        """Nothing for each request."""


def main() -> None:
    parser = argparse.ArgumentParser(description="A scripted stand-in for a model, on this host only.")
    parser.add_argument("--port", type=int, default=8765)
    server = ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Handler)
    print(f"A script answers as a model would, on http://127.0.0.1:{server.server_port}/v1", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
