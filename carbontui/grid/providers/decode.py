"""Decoders for untrusted JSON, XML and tables. Anything unreadable is a BadAnswer that names its source."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree

from carbontui.grid.faults import BadAnswer


def from_json(body: bytes, title: str) -> Any:
    """The decoded body. Raises BadAnswer."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        start = body[:200].lstrip().lower()
        page = start.startswith((b"<!doctype html", b"<html"))
        what = "a web page" if page else "XML" if start.startswith(b"<") else "a broken or cut-off body"
        raise BadAnswer(f"{title} sent {what} instead of JSON") from None


def whole_lines(body: bytes) -> str:
    """The text of a table without an unterminated last line: a table that was cut off ends in half a number."""
    text = body.decode("utf-8-sig", "replace")
    return text[: text.rfind("\n") + 1]


class _Plain(ElementTree.TreeBuilder):
    """Refuses a document type in any encoding: none of our sources sends one, and XML attacks need it."""

    def doctype(self, *_: object) -> None:
        raise BadAnswer("a document type")


def from_xml(body: bytes, title: str) -> ElementTree.Element:
    """The root, with tags stripped of namespaces, which change with every schema version. Raises BadAnswer."""
    try:
        root: ElementTree.Element = ElementTree.fromstring(body, ElementTree.XMLParser(target=_Plain()))
    except BadAnswer:
        raise BadAnswer(f"{title} sent a document type, which is refused") from None
    except ElementTree.ParseError:
        raise BadAnswer(f"{title} sent a broken or cut-off document") from None
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    return root


def text_of(element: ElementTree.Element, path: str, title: str) -> str:
    """The text at `path`. Raises BadAnswer where it is missing."""
    found = element.findtext(path)
    if found is None:
        raise BadAnswer(f"{title} sent a document without {path}")
    return found.strip()
