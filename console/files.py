"""The files that commands write: as a whole or not at all."""

import tempfile
from pathlib import Path

from client.problem import Problem

STDOUT = "-"


def require_writable(file: str, *, replaces: bool = False) -> None:
    """Raise Problem if `file` exists (unless `replaces`) or is a folder or device, or if its folder is missing."""
    if file == STDOUT:
        return
    path = Path(file)
    if path.exists() and not path.is_file():
        raise Problem("no_file", f"{file!r} is a folder or a device, no file", "name a file")
    if path.exists() and not replaces:
        raise Problem("file_exists", f"The file {file!r} exists", "name another, or remove it")
    if not path.parent.is_dir():
        raise Problem("no_file", f"{file!r} cannot be written (there is no folder {str(path.parent)!r})", "make it")


def write_file(text: str, file: str, *, replaces: bool = False) -> None:
    """Write a file as a whole or not at all. Raises Problem if it exists (unless `replaces`) or cannot be written."""
    path = Path(file).resolve()  # a symbolic link is written through, not replaced
    # Written beside the file and renamed, so that no half-written file is left.
    try:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.", delete=False) as rough:
            try:
                rough.write(text + "\n")
                rough.close()
                path.touch(exist_ok=replaces)  # without `replaces`, fails if the file was made meanwhile
                Path(rough.name).replace(path)
            finally:
                Path(rough.name).unlink(missing_ok=True)
    except FileExistsError as error:
        raise Problem("file_exists", f"The file {str(path)!r} exists", "name another, or remove it") from error
    except OSError as error:
        raise Problem("no_file", f"{file!r} cannot be written ({error.strerror})", "name another file") from error
