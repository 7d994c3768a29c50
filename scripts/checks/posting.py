"""Only the executor posts: what moves data for a user goes through collectives/run, so that timeout, abort, tracing and
accounting exist once. Tests may post anywhere."""

import re
from pathlib import Path

from .repository import Finding, cpp_files, matches

# What is called -> where that is allowed, and the reason to give.
RULES: tuple[tuple[re.Pattern[str], tuple[str, ...], str], ...] = (
    (
        re.compile(r"(?:\.|->)\s*post_\w+\s*\("),
        ("transport/", "collectives/run/"),
        "only collectives/run posts to the Messenger; make this a step of a schedule",
    ),
    (
        re.compile(r"\b\w*(?:transport|fabric|loopback|shared_memory)\w*(?:\(\))?\s*(?:\.|->)\s*(?:send|write)\s*\("),
        ("transport/",),
        "only the Messenger sends on a Transport; go through the executor",
    ),
)


def check(root: Path) -> list[Finding]:
    return [
        Finding(name, line, f"{text}...): {reason}")
        for name in cpp_files(root)
        for pattern, allowed, reason in RULES
        if not name.startswith((*allowed, "tests/"))
        for line, text in matches(root, name, pattern)
    ]
