"""`python -m maintenance.names [PATH ...]`: the class names that modules of the product share, with their places."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer

ROOT = Path(__file__).parents[2]
PRODUCT = ("workflows", "activities", "client", "console", "runtime", "replan", "extras")
SCRIPTS = ("worker.py", "starter.py")
Paths = Annotated[list[Path] | None, typer.Argument(help="Files and folders; without any, those of the product.")]


def shared_names(paths: Iterable[Path]) -> Mapping[str, list[str]]:
    """By name of a class that several modules define, its places; private classes and those in others do not count."""
    places = defaultdict[str, list[str]](list)
    for path in paths:
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            if "tests" in file.relative_to(path).parts:  # of an extra
                continue
            for node in ast.parse(file.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(f"{file}:{node.lineno}")
    return {name: found for name, found in sorted(places.items()) if len(found) > 1}


def product() -> list[Path]:
    """The packages and scripts of the product."""
    return [ROOT / name for name in (*PRODUCT, *SCRIPTS)]


def main(paths: Paths = None) -> None:
    """Print each name with its places, and how many names there are."""
    found = shared_names(paths or product())
    for name, places in found.items():
        typer.echo(f"{name}  {'  '.join(places)}")
    typer.echo(f"{len(found):7,}")


if __name__ == "__main__":
    typer.run(main)
