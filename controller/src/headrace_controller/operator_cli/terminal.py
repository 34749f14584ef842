"""What the output goes to, and how it is written: nothing that drives a terminal where there is none."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TextIO

BROKEN_PIPE: Final = 141
"""The exit status of a program that SIGPIPE ended."""
DEFAULT_WIDTH: Final = 80
LEAST_WIDTH: Final = 40
STYLES: Final = {
    "green": "32",
    "yellow": "33",
    "cyan": "36",
    "red": "31",
    "dim": "2",
    "bold": "1",
    "reverse": "7",
}


@dataclass(frozen=True, slots=True)
class Terminal:
    """`width` in columns, None = lines stay whole; `interactive`: a person sits at a terminal that can
    be drawn on; `unicode`: it shows more than ASCII."""

    width: int | None = None
    colour: bool = False
    interactive: bool = False
    unicode: bool = True

    def styled(self, words: str, style: str) -> str:
        """The words in a style, where styles are wanted."""
        return f"\x1b[{STYLES[style]}m{words}\x1b[0m" if self.colour and style else words


def terminal(stream: TextIO | None = None, environ: Mapping[str, str] | None = None) -> Terminal:
    """What stdout (or another stream) is. A pipe has no width: `grep` must find whole lines."""
    out, env = stream or sys.stdout, os.environ if environ is None else environ
    unicode = (getattr(out, "encoding", None) or "ascii").lower().replace("-", "").startswith("utf")
    if not out.isatty():
        return Terminal(unicode=unicode)
    able = env.get("TERM", "") not in ("", "dumb")
    return Terminal(
        width=_width(out, env), colour=able and not env.get("NO_COLOR"), interactive=able, unicode=unicode
    )


def _width(out: TextIO, env: Mapping[str, str]) -> int:
    said = env.get("COLUMNS", "")
    if said.isascii() and said.isdigit() and int(said):
        return max(LEAST_WIDTH, int(said))
    try:
        found = os.get_terminal_size(out.fileno()).columns
    except (OSError, ValueError):
        found = 0
    return max(LEAST_WIDTH, found or DEFAULT_WIDTH)


def write(words: str) -> None:
    """Write to stdout, now. A reader that has gone (`| head`) ends the program quietly."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        sys.stdout.write(words.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        # What is still in the buffer would complain again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(BROKEN_PIPE) from None


def clean(value: Any) -> str:
    """What agents and engines said, as it is, and nothing that drives the terminal."""
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in str(value))


def warn(message: str) -> None:
    """A message on stderr."""
    sys.stderr.write("\n".join(map(clean, f"headrace: {message}".split("\n"))) + "\n")
    sys.stderr.flush()
