"""`write_file`: a whole file in the task's own folder, or nothing anywhere."""

import hashlib
import itertools
import os
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from activities.errors import Refused
from activities.toolbox.injection import Workspace
from activities.toolbox.workspace import MAX_BYTES, MAX_CONTENT, MAX_FILES, NewFile, Written, folder_of, write_file
from tests.activities.bench import Bench, bench
from workflows.faults.fault import Code, Fault


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """The folder of a task that has written nothing yet."""
    return Workspace(tmp_path / "workspace" / "a-task")


@pytest.fixture
async def calls(tmp_path: Path) -> AsyncIterator[Bench]:
    """Calls of a worker with a workspace."""
    async with bench(tmp_path, workspace=tmp_path / "workspace") as ready:
        yield ready


def write(workspace: Workspace, name: str, content: str = "new") -> Written:
    """Write."""
    return write_file(NewFile(name=name, content=content), workspace)


def refusal(workspace: Workspace, name: str, content: str = "new") -> Fault:
    """Why nothing was written."""
    with pytest.raises(Refused) as caught:
        write(workspace, name, content)
    return caught.value.fault


def everything(folder: Path) -> dict[str, bytes | None]:
    """All that there is below a folder; folders and links have no content."""
    paths = [Path(place, name) for place, folders, files in os.walk(folder) for name in (*folders, *files)]
    is_file = {path: path.is_file() and not path.is_symlink() for path in paths}
    return {path.relative_to(folder).as_posix(): path.read_bytes() if is_file[path] else None for path in paths}


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("report.md", "report.md"),
        ("reports/2025/may.md", "reports/2025/may.md"),
        ("Bericht f\u00fcr M\u00fcller (neu).txt", "Bericht f\u00fcr M\u00fcller (neu).txt"),
        ("Cafe\u0301.txt", "Caf\u00e9.txt"),
        (".hidden", ".hidden"),
        ("'; DROP TABLE notes; --", "'; DROP TABLE notes; --"),
        ("%2e%2e%2fpasswd", "%2e%2e%2fpasswd"),
        ("~root", "~root"),
        ("$(id) `id` $HOME", "$(id) `id` $HOME"),
    ],
)
def test_a_file_is_written_under_its_name(workspace: Workspace, name: str, path: str) -> None:
    """A name is only a name; folders in it are made."""
    written = write(workspace, name, "Caf\u00e9\n")

    assert written == Written(path=path, bytes=6, sha256=hashlib.sha256("Caf\u00e9\n".encode()).hexdigest())
    assert (workspace.root / path).read_text() == "Caf\u00e9\n"


def test_the_same_call_again_changes_nothing(workspace: Workspace) -> None:
    """A retry is harmless."""
    first = write(workspace, "a.txt")
    before = everything(workspace.root)

    assert (write(workspace, "a.txt"), everything(workspace.root)) == (first, before)


def test_a_file_is_replaced(workspace: Workspace) -> None:
    """Nothing of the old content is left, also when it was longer."""
    write(workspace, "a.txt", "a long text")
    write(workspace, "a.txt", "short")

    assert everything(workspace.root) == {"a.txt": b"short"}


@pytest.mark.parametrize(
    "name",
    [
        "../out.txt",
        "..",
        "a/../../out.txt",
        "a/..",
        ".",
        "a/./b",
        "/out.txt",
        "//out.txt",
        "a//b",
        "a/",
        "/",
        " ",
        " a",
        "a ",
        "a.",
        "...",
        "..\\out.txt",
        "a\\b",
        "C:out.txt",
        "file:///out.txt",
        "file:out.txt",
        "a:stream",
        "a\x00b",
        "a\nb",
        "\x1b[2J",
        "a\u202etxt.exe",
        "\u200b",
        "a*",
        "a?",
        "<a>",
        "a|b",
        "x" * 121,
        "/".join("abcdefghi"),
        "\u2025/out.txt\x7f",
    ],
)
def test_a_name_that_leads_elsewhere_is_refused(workspace: Workspace, tmp_path: Path, name: str) -> None:
    """And nothing is touched, not even the task's folder."""
    (tmp_path / "out.txt").write_text("old")
    before = everything(tmp_path)

    assert refusal(workspace, name).code is Code.INVALID_INPUT
    assert everything(tmp_path) == before


@given(name=st.text(min_size=1, max_size=60) | st.text("./\\ ~%:\x00ab", min_size=1, max_size=30))
def test_no_name_reaches_beyond_the_folder(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    """Whatever it is, what is written is below the task's folder."""
    root = tmp_path_factory.mktemp("name")
    with suppress(Refused):
        write(Workspace(root / "workspace" / "a-task"), name)

    assert all(path.split("/")[0] == "workspace" for path in everything(root))
    assert all(path.split("/")[1:2] in ([], ["a-task"]) for path in everything(root))


@pytest.fixture
def outside(tmp_path: Path, workspace: Workspace) -> Path:
    """A folder with a file, which links in the workspace lead to."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("old")
    workspace.root.mkdir(parents=True)
    (workspace.root / "folder").symlink_to(outside)
    (workspace.root / "file").symlink_to(outside / "file")
    (workspace.root / "nowhere").symlink_to(outside / "new")
    (workspace.root / "loop").symlink_to("loop")
    (workspace.root / "inner").mkdir()
    (workspace.root / "inner" / "up").symlink_to("../../..")
    return outside


@pytest.mark.parametrize(
    "name", ["folder/file", "folder/new", "folder", "file", "nowhere", "loop", "loop/a", "inner/up/new", "file/a"]
)
def test_a_link_is_not_followed(workspace: Workspace, outside: Path, name: str) -> None:
    """Neither as a folder on the way nor as the file itself."""
    fault = refusal(workspace, name)

    assert fault.code is Code.CONFLICT
    assert everything(outside) == {"file": b"old"}


def test_a_folder_that_is_a_link_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    """The task's own folder is a folder."""
    workspace.root.parent.mkdir()
    (tmp_path / "outside").mkdir()
    workspace.root.symlink_to(tmp_path / "outside")

    assert refusal(workspace, "a.txt").code is Code.CONFLICT


@pytest.mark.parametrize("times", [50, pytest.param(300, marks=pytest.mark.full)])
def test_a_link_that_takes_a_folders_place_leads_nowhere(workspace: Workspace, tmp_path: Path, times: int) -> None:
    """Somebody who swaps folder and link while files are written gains nothing."""
    (tmp_path / "outside").mkdir()
    write(workspace, "d/a.txt")
    place, link, stop = workspace.root / "d", workspace.root / "link", threading.Event()
    link.symlink_to(tmp_path / "outside")

    def swap() -> None:
        for number in itertools.takewhile(lambda _: not stop.is_set(), itertools.count()):
            for old, new in ((place, workspace.root / str(number)), (link, place), (place, link)):
                with suppress(OSError):  # the other thread was quicker
                    old.rename(new)

    swapper = threading.Thread(target=swap)
    swapper.start()
    for number in range(times):
        with suppress(Refused, OSError):
            write(workspace, f"d/{number}.txt")
    stop.set()
    swapper.join()

    assert everything(tmp_path / "outside") == {}


@pytest.mark.parametrize(("there", "name"), [("a/b.txt", "a"), ("a", "a/b.txt"), ("a/b/c", "a/b")])
def test_a_folder_is_not_replaced_by_a_file_nor_a_file_by_a_folder(workspace: Workspace, there: str, name: str) -> None:
    """What is in the way is named, and stays."""
    write(workspace, there, "old")

    assert refusal(workspace, name).code is Code.CONFLICT
    assert (workspace.root / there).read_text() == "old"


def test_readers_see_the_old_file_or_the_new_one(workspace: Workspace) -> None:
    """Never half of one, however often it is replaced."""
    texts = {sign * 100_000 for sign in "ab"}
    write(workspace, "a.txt", "a" * 100_000)
    seen, stop = set[str](), threading.Event()

    def look() -> None:
        while not stop.is_set():
            seen.add((workspace.root / "a.txt").read_text())

    reader = threading.Thread(target=look)
    reader.start()
    for number in range(100):
        write(workspace, "a.txt", "ab"[number % 2] * 100_000)
    stop.set()
    reader.join()

    assert seen <= texts


def test_writers_at_the_same_time_do_not_mix(workspace: Workspace) -> None:
    """An attempt that hangs on and its retry may both write."""
    threads = [threading.Thread(target=write, args=(workspace, "a.txt", sign * 100_000)) for sign in "abcd" * 5]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (name, content), *others = everything(workspace.root).items()

    assert (name, len(content or b""), len(set(content or b"")), others) == ("a.txt", 100_000, 1, [])


def test_a_write_that_fails_leaves_nothing(workspace: Workspace, tmp_path: Path) -> None:
    """No half file, no temporary one: a name that the file system does not take."""
    write(workspace, "a.txt", "old")
    with pytest.raises(OSError, match="name too long"):
        write(workspace, "\u20ac" * 120)

    assert everything(workspace.root) == {"a.txt": b"old"}


def test_a_write_that_fails_takes_its_folders_along(workspace: Workspace, tmp_path: Path) -> None:
    """What was made for the file goes with it; what was there before stays."""
    with pytest.raises(OSError, match="name too long"):
        write(workspace, "a/b/" + "\u20ac" * 120)
    assert everything(tmp_path) == {"workspace": None}

    write(workspace, "a/old.txt", "old")
    with pytest.raises(OSError, match="name too long"):
        write(workspace, "a/b/c/" + "\u20ac" * 120)

    assert everything(workspace.root) == {"a": None, "a/old.txt": b"old"}


@pytest.mark.parametrize("content", ["Caf\u00e9\n", "Caf\u00e9\n".encode(), bytearray("Caf\u00e9\n".encode())])
def test_a_tool_writes_a_text_or_bytes(workspace: Workspace, content: str | bytes) -> None:
    """A text as UTF-8, with its line ends as they are."""
    assert workspace.write("a.txt", content) == "a.txt"
    assert everything(workspace.root) == {"a.txt": "Caf\u00e9\n".encode()}


@pytest.mark.parametrize("content", [7, None, ["a"]])
def test_what_is_no_text_touches_nothing(workspace: Workspace, tmp_path: Path, content: Any) -> None:
    """The mistake of a tool leaves no folder behind."""
    with pytest.raises(TypeError):
        workspace.write("a/b.txt", content)

    assert everything(tmp_path) == {}


@pytest.fixture
def full(workspace: Workspace) -> Workspace:
    """A task's folder with as many files as there may be."""
    workspace.root.mkdir(parents=True)
    for number in range(MAX_FILES):
        (workspace.root / str(number)).touch()
    return workspace


def test_the_number_of_files_is_bounded(full: Workspace) -> None:
    """A task in a loop does not fill the disk."""
    assert refusal(full, "one-more").code is Code.REFUSED


def test_a_file_of_a_full_folder_can_be_replaced(full: Workspace) -> None:
    """That makes it no fuller."""
    assert write(full, "7", "seven").bytes == 5


def test_the_bytes_of_all_files_are_bounded(workspace: Workspace) -> None:
    """The sum counts, not only the file."""
    workspace.root.mkdir(parents=True)
    with (workspace.root / "large").open("wb") as file:
        file.truncate(MAX_BYTES - 2)

    assert refusal(workspace, "a.txt", "abc").code is Code.REFUSED


def test_a_text_that_is_too_long_is_no_argument() -> None:
    """It is refused before anything is done."""
    with pytest.raises(ValidationError):
        NewFile(name="a.txt", content="x" * (MAX_CONTENT + 1))


@pytest.mark.parametrize(
    ("task", "folder"),
    [
        ("book-a-slot-7f3a", "book-a-slot-7f3a"),
        ("Task_1.a", "Task_1.a"),
        ("..", "%2E."),
        (".", "%2E"),
        ("a/b", "a%2Fb"),
        ("../../etc", "%2E.%2F..%2Fetc"),
        ("a b\u00e9", "a%20b%C3%A9"),
        ("a\x00b", "a%00b"),
        ("a%2Fb", "a%252Fb"),
        ("\\", "%5C"),
    ],
)
def test_a_tasks_folder_is_named_like_the_task(task: str, folder: str) -> None:
    """A person finds it, and no id leads out of the root."""
    assert folder_of(task) == folder


@given(one=st.text(min_size=1, max_size=300), other=st.text(min_size=1, max_size=300))
def test_two_tasks_never_share_a_folder(one: str, other: str) -> None:
    """Different ids, different folders, each one part of a path."""
    names = {folder_of(one), folder_of(other)}

    assert len(names) == len({one, other})
    assert all("/" not in name and name not in (".", "..") and len(name) < 200 for name in names)


async def test_each_task_writes_in_its_own_folder(calls: Bench, tmp_path: Path) -> None:
    """Below the worker's root, under the id of the task."""
    back = await calls.call(write_file, name="a/b.txt", content="new")

    assert everything(tmp_path / "workspace") == {"a-task": None, "a-task/a": None, "a-task/a/b.txt": b"new"}
    assert back.result == {"path": "a/b.txt", "bytes": 3, "sha256": hashlib.sha256(b"new").hexdigest()}


@pytest.mark.parametrize("name", ["../a.txt", "/a.txt", "file:///a.txt", "a\x00", "\u20ac" * 120])
async def test_the_boundary_makes_a_fault_of_it(calls: Bench, tmp_path: Path, name: str) -> None:
    """A hostile name is replanned."""
    fault, _ = await calls.fails(write_file, name=name, content="new")

    assert fault.code is Code.INVALID_INPUT
    assert not [path for path, content in everything(tmp_path / "workspace").items() if content]


async def test_a_worker_without_a_workspace_asks_a_person(tmp_path: Path) -> None:
    """It says which option is missing."""
    async with bench(tmp_path) as calls:
        fault, _ = await calls.fails(write_file, name="a.txt", content="new")

    assert fault.code is Code.NEEDS_PERSON
    assert "--workspace" in fault.reason
