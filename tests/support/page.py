"""What is on a page of a report: its elements with their attributes, and the text of each."""

import json
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

VOID = {"meta", "wbr"}
GLOSSARY = "https://pytest-nsys.github.io/pytest-nsys/glossary/"


class Page(HTMLParser):
    """The page, taken apart; it fails where an element is closed that is not open, or left open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts[self.open[-1]][-1] += data

    def by_class(self, name: str) -> list[dict[str, str | None]]:
        """The attributes of the elements of a class."""
        return [attrs for _, attrs in self.tags if name in (attrs.get("class") or "").split()]

    def attributes(self, name: str) -> Iterator[str]:
        """The values of an attribute, whoever has it."""
        yield from (attrs[name] or "" for _, attrs in self.tags if name in attrs)

    @property
    def data(self) -> list[Any]:
        """What the script of each timeline reads."""
        found = zip([attrs for tag, attrs in self.tags if tag == "script"], self.texts.get("script", ()), strict=True)
        return [json.loads(text) for attrs, text in found if attrs.get("type") == "application/json"]

    def asks_for_nothing(self) -> None:
        """Nothing on it is of the network, nor runs or styles but what it brings along."""
        assert not {"link", "img", "iframe", "object", "base", "form"} & {tag for tag, _ in self.tags}
        for name in ("src", "style", "srcset", "onload", "onclick", "xlink:href"):
            assert [*self.attributes(name)] == []
        # A link to the glossary is followed when somebody clicks it.
        assert all(target.startswith("#") or target == GLOSSARY for target in self.attributes("href"))
        (style,) = self.texts["style"]
        assert "url(" not in style
        assert "@import" not in style
        (policy,) = [attrs["content"] or "" for _, attrs in self.tags if attrs.get("http-equiv")]
        scripts = "; script-src 'sha256-" if "script" in self.texts else "; base-uri"
        assert policy.startswith(f"default-src 'none'; style-src 'unsafe-inline'{scripts}")
        assert "unsafe-inline" not in policy.partition("script-src")[2]
