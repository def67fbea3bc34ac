"""Printing: documents for programs, short views for people, the same through a pipe.

Nothing is wrapped, cut or coloured where nobody looks at it, and what an Agent wrote cannot steer
the terminal.
"""

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic_core import to_json
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

Cell = str | Text

_CONTROLS = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"} | {
    0x7F: "\u2421",
    **{code: "\ufffd" for code in range(0x80, 0xA0)},
}
"""Control characters become visible pictures of themselves."""


def console(*, stderr: bool = False) -> Console:
    return Console(stderr=stderr, soft_wrap=True, highlight=False, markup=False, emoji=False)


def clean(text: str) -> str:
    """Text from elsewhere, made harmless for a terminal."""
    return text.translate(_CONTROLS)


def styled(text: str, style: str = "") -> Text:
    return Text(clean(text), style=style)


def say(text: Cell = "", style: str = "") -> None:
    """One line of the answer, for people."""
    console().print(styled(text, style) if isinstance(text, str) else text)


def note(text: Cell, style: str = "dim") -> None:
    """One line beside the answer: on stderr, where it is in nobody's way."""
    console(stderr=True).print(styled(text, style) if isinstance(text, str) else text)


def ask(text: str) -> None:
    """A prompt on stderr; whoever answers types behind it."""
    sys.stderr.write(clean(text))
    sys.stderr.flush()


def write(text: str) -> None:
    """Part of an Agent's output, as it is."""
    sys.stdout.write(clean(text))
    sys.stdout.flush()


def document(value: Any, *, lines: bool = False) -> None:
    """A value as JSON: one document, or with `lines` one object on its line."""
    text = to_json(value, indent=None if lines else 2).decode("utf-8", "surrogatepass")
    if (sys.stdout.encoding or "").lower().replace("-", "") != "utf8":
        text = "".join(c if c.isascii() else _escaped(c) for c in text)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def table(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """Aligned columns, as wide as they need to be."""
    lines = [[styled(name, "bold") for name in header]]
    lines += [[styled(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    widths = [max(cell_len(line[column].plain) for line in lines) for column in range(len(header))]
    for line in lines:
        text = Text()
        for cell, width in zip(line, widths, strict=True):
            text.append_text(cell).append(" " * (width - cell_len(cell.plain) + 2))
        text.rstrip()
        say(text)


def fields(pairs: Iterable[tuple[str, Cell | None]]) -> None:
    """Names and values, one a line; what is None is left out."""
    shown = [(name, value) for name, value in pairs if value is not None]
    width = max(len(name) for name, _ in shown)
    for name, value in shown:
        text = Text(f"{name:<{width}}  ", style="dim")
        text.append_text(styled(value, "not dim") if isinstance(value, str) else value)
        say(text)
