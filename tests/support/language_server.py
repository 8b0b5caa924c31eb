"""yaml-language-server, which checks and completes YAML in VS Code, Neovim and other editors, as a test talks to it.

It is a program of Node: ``npm install yaml-language-server``. The variable :data:`PROGRAM` names it, else the path.
"""

import contextlib
import json
import os
import shutil
import subprocess
from itertools import count
from pathlib import Path
from threading import Timer
from types import TracebackType
from typing import Any, NamedTuple, Self

PROGRAM = "YAML_LANGUAGE_SERVER"
"""The environment variable that names the program."""

CURSOR = "▌"
"""Where completion is asked for, in a text."""


def program() -> str | None:
    """The path of the language server; None where there is none."""
    return os.environ.get(PROGRAM) or shutil.which("yaml-language-server")


class Proposal(NamedTuple):
    """One thing that the editor offers: its label, what it says of itself, and the text that is written."""

    label: str
    about: str
    text: str


PATIENCE_S = 120.0
"""No test talks to a server for longer."""


class LanguageServer:
    """One server, for files of one folder; its settings name the schema. Raises EOFError where it ends by itself."""

    def __init__(self, folder: Path, schema: Path | None) -> None:
        self.folder, self._schema = folder, schema
        self._numbers = count(1)
        path = program()
        assert path is not None
        self._process = subprocess.Popen([path, "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._end = Timer(PATIENCE_S, self._process.kill)

    def __enter__(self) -> Self:
        self._end.start()
        root = self.folder.as_uri()
        item = {"snippetSupport": True, "documentationFormat": ["markdown", "plaintext"]}
        able = {"textDocument": {"completion": {"completionItem": item}}, "workspace": {"configuration": True}}
        self._ask("initialize", {"processId": None, "rootUri": root, "capabilities": able})
        self._tell("initialized", {})
        while self._read().get("method") != "workspace/configuration":
            continue  # until it knows the schema, it offers nothing
        self.mistakes("")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with contextlib.suppress(EOFError, OSError):
            self._ask("shutdown", None)
            self._tell("exit", None)
        self._end.cancel()
        self._process.kill()
        self._process.communicate()

    def mistakes(self, text: str) -> list[str]:
        """What the editor underlines in a gate file: ``line: message``, lines from 1."""
        uri = self._open(text)
        while True:
            told = self._read()
            if told.get("method") == "textDocument/publishDiagnostics" and told["params"]["uri"] == uri:
                found = told["params"]["diagnostics"]
                return [f"{one['range']['start']['line'] + 1}: {one['message']}" for one in found]

    def proposals(self, text: str) -> list[Proposal]:
        """What the editor offers at the cursor."""
        before, after = text.split(CURSOR)
        uri = self._open(before + after)
        place = {"line": before.count("\n"), "character": len(before.rpartition("\n")[2])}
        found = self._ask("textDocument/completion", {"textDocument": {"uri": uri}, "position": place})
        return [_proposal(item) for item in found["items"]]

    def about(self, text: str) -> str:
        """What the editor says of the word at the cursor."""
        before, after = text.split(CURSOR)
        uri = self._open(before + after)
        place = {"line": before.count("\n"), "character": len(before.rpartition("\n")[2])}
        found = self._ask("textDocument/hover", {"textDocument": {"uri": uri}, "position": place})
        return str(found["contents"]["value"]) if found else ""

    def _open(self, text: str) -> str:
        uri = (self.folder / f"{next(self._numbers)}.nsys.yaml").as_uri()
        document = {"uri": uri, "languageId": "yaml", "version": 1, "text": text}
        self._tell("textDocument/didOpen", {"textDocument": document})
        return uri

    def _ask(self, method: str, params: Any) -> Any:
        number = next(self._numbers)
        self._send({"id": number, "method": method, "params": params})
        while True:
            told = self._read()
            if told.get("id") == number and "method" not in told:
                assert "error" not in told, told["error"]
                return told["result"]

    def _tell(self, method: str, params: Any) -> None:
        self._send({"method": method, "params": params})

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self._process.stdin is not None
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._process.stdin.flush()

    def _read(self) -> dict[str, Any]:
        """The next message; what the server asks for is answered."""
        assert self._process.stdout is not None
        length = 0
        while line := self._process.stdout.readline().strip():
            name, _, value = line.partition(b": ")
            length = int(value) if name == b"Content-Length" else length
        if not length:
            raise EOFError("the language server has ended")
        told: dict[str, Any] = json.loads(self._process.stdout.read(length))
        if "id" in told and "method" in told:
            asked = told["params"].get("items", ()) if isinstance(told["params"], dict) else ()
            answer = [self._settings.get(item.get("section")) for item in asked] or None
            self._send({"id": told["id"], "result": answer})
        return told

    @property
    def _settings(self) -> dict[str, Any]:
        schemas = {} if self._schema is None else {self._schema.as_uri(): "*.nsys.yaml"}
        return {"yaml": {"schemas": schemas, "schemaStore": {"enable": False, "url": ""}, "validate": True}}


def _proposal(item: dict[str, Any]) -> Proposal:
    about = item.get("documentation") or ""
    text = (item.get("textEdit") or {}).get("newText") or item.get("insertText") or item["label"]
    return Proposal(item["label"], about if isinstance(about, str) else about["value"], text)
