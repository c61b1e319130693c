"""The folder that a task may write in, and the kind `write_file`. No file name or link leads out of this folder."""

import errno
import functools
import hashlib
import os
import re
import secrets
import stat
import unicodedata
import urllib.parse
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, Field

from activities.errors import Refused
from activities.toolbox.declare.tool import tool
from workflows.text import normalized

MAX_BYTES, MAX_FILES = 50_000_000, 1_000  # limits of one task
MAX_DEPTH, MAX_PART, MAX_ID = 8, 120, 120
_FOREIGN = re.compile(r'[\\:*?"<>|]')
"""Matches characters that some systems do not allow in a file name; a colon could mean a drive, a stream or a URL."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def folder_of(task: str) -> str:
    """The name of a task's folder: the task's id, percent-encoded; a long name is cut and gets a digest of the id."""
    name = re.sub(r"^\.", "%2E", urllib.parse.quote(task, safe="", errors="replace"))
    if len(name) <= MAX_ID:
        return name
    return f"{name[:MAX_ID]}%%{hashlib.sha256(task.encode(errors='replace')).hexdigest()[:32]}"


@dataclass(frozen=True)
class Workspace:
    """The task's own folder below `--workspace`; the first write creates it."""

    root: Path

    def write(self, name: str, content: str | bytes) -> str:
        """Write a file completely or not at all (a str as UTF-8), and return its normalised name.

        Raises:
            Refused: the name is not allowed, the folder is full, or there is a folder or a link of this name.
        """
        *folders, last = parts = _parts(name)
        data = content.encode() if isinstance(content, str) else bytes(memoryview(content))
        self._check_room(self.root.joinpath(*parts), len(data))
        with self._create_folder(), _opened(self.root, folders) as folder:
            _check_place(folder, last)
            _replace(folder, last, data)
        return "/".join(parts)

    @contextmanager
    def _create_folder(self) -> Iterator[None]:
        """Create the task's folder. If the block fails, remove the folder again, provided that it is new and empty."""
        is_new = not self.root.exists()
        self.root.mkdir(parents=True, exist_ok=True)
        try:
            yield
        except BaseException:
            if is_new:
                with suppress(OSError):  # another call has written in it
                    self.root.rmdir()
            raise

    def _check_room(self, new: Path, size: int) -> None:
        """Raise Refused if a new file of `size` bytes at `new` would exceed the limits of the task's folder."""
        paths = (Path(folder, file) for folder, _, files in os.walk(self.root) for file in files)
        # A file that will be replaced does not count.
        others = [_size(path) for path in paths if path != new]
        if sum(others) + size > MAX_BYTES or len(others) >= MAX_FILES:
            reason = f"The task's folder may hold {MAX_FILES:,} files and {MAX_BYTES:,} bytes: write less."
            raise Refused(reason, observed={"files": len(others), "bytes": sum(others)})


def _size(path: Path) -> int:
    with suppress(OSError):  # it was another call's temporary file, or is in a folder of another user
        return path.lstat().st_size
    return 0


def _parts(name: str) -> Sequence[str]:
    """Split a relative name into its folders and the file; raises Refused if a part is not allowed."""
    # Two encodings of the same letters (composed or not) must mean one file.
    parts = normalized("NFC", name).split("/")
    if len(parts) > MAX_DEPTH or not all(map(_is_allowed_name, parts)):
        reason = (
            f"{name[:80]!r} is no name for a file here: write it relative to the task's folder, like reports/may.md, in"
            f" at most {MAX_DEPTH} parts of {MAX_PART} characters, without '..' and \\ : * ? \" < > |."
        )
        raise Refused(reason, code="invalid_input")
    return parts


def _is_allowed_name(part: str) -> bool:
    is_short = 0 < len(part) <= MAX_PART and part == part.strip() and not part.endswith(".")
    return is_short and not _FOREIGN.search(part) and all(unicodedata.category(sign)[0] != "C" for sign in part)


@contextmanager
def _opened(root: Path, folders: Sequence[str]) -> Iterator[int]:
    """Open or create `folders` below `root`, and yield the last one's descriptor; after an error, remove new ones."""
    # Each folder is opened relative to the one before and without following links: another process may replace a
    # folder by a link at any time, and the path must not lead out of the root.
    with ExitStack() as way:
        folder = _enter(root)
        way.callback(os.close, folder)
        for name in folders:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=folder)
                way.push(functools.partial(_remove_after_failure, name, folder))
            folder = _enter(name, folder)
            way.callback(os.close, folder)
        yield folder


def _remove_after_failure(name: str, parent: int, failed: type[BaseException] | None, *_: object) -> None:
    """Remove the folder `name` in `parent` if the block failed (with an exception of the type `failed`)."""
    if failed is not None:
        with suppress(OSError):  # another call has written in it
            os.rmdir(name, dir_fd=parent)


def _enter(name: str | Path, parent: int | None = None) -> int:
    """Open a folder without following links, and return its descriptor. Raises Refused if it is a file or a link."""
    try:
        return os.open(name, _FOLDER, dir_fd=parent)
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        reason = f"{Path(name).name!r} is a file or a link there, no folder: choose another name."
        raise Refused(reason, code="conflict") from None


def _check_place(folder: int, name: str) -> None:
    """Raise Refused if `name` in the folder (a descriptor) is a folder or a link."""
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise Refused(f"{name!r} is a folder or a link there, no file: choose another name.", code="conflict")


def _replace(folder: int, name: str, content: bytes) -> None:
    """Write a temporary file and rename it: at any time, even after a crash, the file is either old or new."""
    beside = f".{secrets.token_hex(8)}.part"
    try:
        with os.fdopen(os.open(beside, _NEW_FILE, 0o644, dir_fd=folder), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(beside, dir_fd=folder)
    # Without this, a crash of the machine may undo the rename.
    os.fsync(folder)


MAX_CONTENT = 256 * 1024  # characters of one file


class NewFile(BaseModel):
    """What to write, and where."""

    name: str = Field(
        description="The file, relative to the task's folder, e.g. report.md", min_length=1, max_length=400
    )
    content: str = Field(description="The whole text; what was in the file before is replaced", max_length=MAX_CONTENT)


class Written(BaseModel):
    """A file that is there now."""

    path: str
    """The path of the file, relative to the task's folder."""
    bytes: int
    sha256: str


@tool.idempotent(content=["content"])
def write_file(args: NewFile, workspace: Workspace) -> Written:
    """Write a text file into the task's own folder, replacing a file of the same name."""
    content = args.content.encode()
    path = workspace.write(args.name, content)
    return Written(path=path, bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
