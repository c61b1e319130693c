"""Prints one page, or says which there are."""

import sys

from console.problem import Exit
from console.reference import pages


def main(names: list[str]) -> int:
    """Print the page of this name."""
    if len(names) != 1 or names[0] not in pages.PAGES:
        print(f"usage: python -m console.reference {'|'.join(pages.PAGES)}", file=sys.stderr)
        return Exit.BAD_USAGE
    sys.stdout.write(pages.PAGES[names[0]]())
    return Exit.COMPLETED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
