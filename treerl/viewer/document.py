"""The document: one file, its own script and style allowed by their hashes, and nothing else.

Nothing of a run is written as markup. Its records are JSON in a block that no browser executes,
without a character that could end the block or open a comment in it; the page's script puts their
strings into text nodes. The content security policy then forbids every other script, and every
request.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

__all__ = ["page_html"]

SCRIPTS = ("layout.js", "tints.js", "drawing.js", "panel.js", "main.js")
"""In this order; together they are one script of strict scope."""


def page_html(data: Mapping[str, Any]) -> str:
    """Return the page for what :meth:`PageTrees.to_json` gives.

    Raises:
        ValueError: A number of the data is infinite or NaN.
    """
    style = _asset("page.css")
    script = '"use strict";\n(() => {\n' + "\n".join(map(_asset, SCRIPTS)) + "})();\n"
    policy = (
        f"default-src 'none'; script-src 'sha256-{_hash(script)}'; "
        f"style-src 'sha256-{_hash(style)}'; base-uri 'none'; form-action 'none'"
    )
    parts = {"policy": policy, "style": style, "script": script, "data": _json(data)}
    # All in one pass: what stands in the data is never looked at again.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _asset("page.html"))


@cache
def _asset(name: str) -> str:
    return files("treerl.viewer").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _json(data: Mapping[str, Any]) -> str:
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # A lone surrogate has no UTF-8 form; in a tree file it became the same question mark.
    text = text.encode("utf-8", "replace").decode()
    for character in "<>&\u2028\u2029":  # in JSON they only ever stand inside strings
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
