"""Bodies as trees: JSON and XML that come from strangers. What cannot be read is a BadAnswer that names who sent it."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree

from carbontui.grid.faults import BadAnswer


def from_json(body: bytes | str, title: str) -> Any:
    """The decoded body. Raises BadAnswer."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise BadAnswer(f"{title} sent a broken or cut-off body") from None


def whole_lines(body: bytes) -> str:
    """The text of a table without a last line that has no end: where a table is cut off, half a number stands."""
    text = body.decode("utf-8-sig", "replace")
    return text[: text.rfind("\n") + 1]


class _Plain(ElementTree.TreeBuilder):
    """A document type is sent by none of our sources and is where XML attacks live: refused in every encoding."""

    def doctype(self, *_: object) -> None:
        raise BadAnswer("a document type")


def from_xml(body: bytes, title: str) -> ElementTree.Element:
    """The root, tags without their namespaces, which change with every version of a schema. Raises BadAnswer."""
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
    """The text at `path`. Raises BadAnswer where there is none."""
    found = element.findtext(path)
    if found is None:
        raise BadAnswer(f"{title} sent a document without {path}")
    return found.strip()
