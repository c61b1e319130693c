"""`python -m maintenance.lines PATH ...`: how many lines of code there are, without docstrings, comments and blanks."""

import ast
import io
import tokenize
from pathlib import Path
from typing import Annotated

import typer

LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
"""The tokens that are no code."""


def lines_of(source: str) -> int:
    """How many lines of a program have code; a text that stands for itself is a docstring, and is none."""
    texts = set[int]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            texts.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    code = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in LAYOUT:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - texts)


def main(paths: Annotated[list[Path], typer.Argument(help="Files, and folders with all that is below them.")]) -> None:
    """Print the number of each path, and the sum."""
    total = 0
    for path in paths:
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        number = sum(lines_of(file.read_text(encoding="utf-8")) for file in files)
        total += number
        typer.echo(f"{number:7,}  {path}")
    typer.echo(f"{total:7,}")


if __name__ == "__main__":
    typer.run(main)
