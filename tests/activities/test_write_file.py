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
    return write_file(NewFile(name=name, content=content), workspace)


def refusal(workspace: Workspace, name: str, content: str = "new") -> Fault:
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


def test_a_file_is_replaced(workspace: Workspace) -> None:
    """Nothing of the old content is left, also when it was longer; the same call again changes nothing."""
    write(workspace, "a.txt", "a long text")
    first = write(workspace, "a.txt", "short")

    assert everything(workspace.root) == {"a.txt": b"short"}
    assert (write(workspace, "a.txt", "short"), everything(workspace.root)) == (first, {"a.txt": b"short"})


ELSEWHERE = [
    *("../out.txt", "..", "a/../../out.txt", "a/..", ".", "a/./b", "/out.txt", "//out.txt", "a//b", "a/", "/"),
    *(" ", " a", "a ", "a.", "...", "..\\out.txt", "a\\b", "C:out.txt", "file:///out.txt", "file:out.txt", "a:stream"),
    *("a\x00b", "a\nb", "\x1b[2J", "a\u202etxt.exe", "\u200b", "a*", "a?", "<a>", "a|b", "\u2025/out.txt\x7f"),
    *("x" * 121, "/".join("abcdefghi")),
]


def test_a_name_that_leads_elsewhere_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    """And nothing is touched, not even the task's folder."""
    (tmp_path / "out.txt").write_text("old")
    before = everything(tmp_path)

    assert [name for name in ELSEWHERE if refusal(workspace, name).code is not Code.INVALID_INPUT] == []
    assert everything(tmp_path) == before


@given(name=st.text(min_size=1, max_size=60) | st.text("./\\ ~%:\x00ab", min_size=1, max_size=30))
def test_no_name_reaches_beyond_the_folder(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    """Whatever it is, what is written is below the task's folder."""
    root = tmp_path_factory.mktemp("name")
    with suppress(Refused):
        write(Workspace(root / "workspace" / "a-task"), name)

    assert all(path.split("/")[0] == "workspace" for path in everything(root))
    assert all(path.split("/")[1:2] in ([], ["a-task"]) for path in everything(root))


LINKS = ["folder/file", "folder/new", "folder", "file", "nowhere", "loop", "loop/a", "inner/up/new", "file/a"]


def test_a_link_is_not_followed(workspace: Workspace, tmp_path: Path) -> None:
    """Neither as a folder on the way nor as the file itself; and the task's own folder is a folder."""
    (outside := tmp_path / "outside").mkdir()
    (outside / "file").write_text("old")
    (workspace.root / "inner").mkdir(parents=True)
    (workspace.root / "folder").symlink_to(outside)
    (workspace.root / "file").symlink_to(outside / "file")
    (workspace.root / "nowhere").symlink_to(outside / "new")
    (workspace.root / "loop").symlink_to("loop")
    (workspace.root / "inner" / "up").symlink_to("../../..")
    (linked := Workspace(tmp_path / "workspace" / "linked")).root.symlink_to(outside)

    assert [name for name in LINKS if refusal(workspace, name).code is not Code.CONFLICT] == []
    assert refusal(linked, "a.txt").code is Code.CONFLICT
    assert everything(outside) == {"file": b"old"}


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


def test_a_folder_is_not_replaced_by_a_file_nor_a_file_by_a_folder(workspace: Workspace) -> None:
    """What is in the way is named, and stays."""
    for there, name in (("a/b.txt", "a"), ("c", "c/b.txt"), ("d/b/c", "d/b")):
        write(workspace, there, "old")
        assert refusal(workspace, name).code is Code.CONFLICT
        assert (workspace.root / there).read_text() == "old"


def test_readers_and_writers_at_the_same_time_see_no_half_of_a_file(workspace: Workspace) -> None:
    """However often it is replaced; an attempt that hangs on and its retry may both write."""
    write(workspace, "a.txt", "a" * 100_000)
    seen, stop = set[str](), threading.Event()

    def look() -> None:
        while not stop.is_set():
            seen.add((workspace.root / "a.txt").read_text())

    reader = threading.Thread(target=look)
    reader.start()
    writers = [threading.Thread(target=write, args=(workspace, "a.txt", sign * 100_000)) for sign in "abcd" * 25]
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    reader.join()
    (name, content), *others = everything(workspace.root).items()

    assert seen <= {sign * 100_000 for sign in "abcd"}
    assert (name, len(content or b""), len(set(content or b"")), others) == ("a.txt", 100_000, 1, [])


def test_a_write_that_fails_leaves_nothing(workspace: Workspace, tmp_path: Path) -> None:
    """Here a name that the file system does not take: no half file and no folder; what was there before stays."""
    long = "\u20ac" * 120
    with pytest.raises(OSError, match="name too long"):
        write(workspace, f"a/b/{long}")
    assert everything(tmp_path) == {"workspace": None}

    write(workspace, "a/old.txt", "old")
    for name in (long, f"a/b/c/{long}"):
        with pytest.raises(OSError, match="name too long"):
            write(workspace, name)

    assert everything(workspace.root) == {"a": None, "a/old.txt": b"old"}


def test_a_tool_writes_a_text_or_bytes(workspace: Workspace, tmp_path: Path) -> None:
    """A text as UTF-8, with its line ends as they are; the mistake of a tool leaves no folder behind."""
    wrong: list[Any] = [7, None, ["a"]]
    right: list[Any] = ["Caf\u00e9\n", "Caf\u00e9\r\n".encode(), bytearray("Caf\u00e9\n".encode())]
    for content in wrong:
        with pytest.raises(TypeError):
            workspace.write("a/b.txt", content)
    assert everything(tmp_path) == {}
    for content in right:
        encoded = content.encode() if isinstance(content, str) else bytes(content)
        assert workspace.write("a.txt", content) == "a.txt"
        assert everything(workspace.root) == {"a.txt": encoded}


def test_the_number_of_files_and_their_bytes_are_bounded(workspace: Workspace, tmp_path: Path) -> None:
    """A task in a loop does not fill the disk. A file of a full folder can be replaced, which makes it no fuller."""
    workspace.root.mkdir(parents=True)
    for number in range(MAX_FILES):
        (workspace.root / str(number)).touch()
    (large := Workspace(tmp_path / "workspace" / "large")).root.mkdir()
    with (large.root / "large").open("wb") as file:
        file.truncate(MAX_BYTES - 2)

    assert refusal(workspace, "one-more").code is refusal(large, "a.txt", "abc").code is Code.REFUSED
    assert write(workspace, "7", "seven").bytes == 5
    with pytest.raises(ValidationError):
        NewFile(name="a.txt", content="x" * (MAX_CONTENT + 1))


FOLDERS = {
    **{"book-a-slot-7f3a": "book-a-slot-7f3a", "Task_1.a": "Task_1.a", "..": "%2E.", ".": "%2E", "a/b": "a%2Fb"},
    **{"../../etc": "%2E.%2F..%2Fetc", "a b\u00e9": "a%20b%C3%A9", "a\x00b": "a%00b", "a%2Fb": "a%252Fb", "\\": "%5C"},
}


def test_a_tasks_folder_is_named_like_the_task() -> None:
    """A person finds it, and no id leads out of the root."""
    assert {task: folder_of(task) for task in FOLDERS} == FOLDERS


@given(one=st.text(min_size=1, max_size=300), other=st.text(min_size=1, max_size=300))
def test_two_tasks_never_share_a_folder(one: str, other: str) -> None:
    """Different ids, different folders, each one part of a path."""
    names = {folder_of(one), folder_of(other)}

    assert len(names) == len({one, other})
    assert all("/" not in name and name not in (".", "..") and len(name) < 200 for name in names)


async def test_each_task_writes_in_its_own_folder(calls: Bench, tmp_path: Path) -> None:
    """Under the id of the task; a hostile name is replanned, and a worker without a workspace names the option."""
    back = await calls.call(write_file, name="a/b.txt", content="new")
    codes = {(await calls.fails(write_file, name=name, content="new"))[0].code for name in ("../a.txt", "\u20ac" * 120)}
    async with bench(tmp_path / "other") as without:
        fault, _ = await without.fails(write_file, name="a.txt", content="new")

    assert everything(tmp_path / "workspace") == {"a-task": None, "a-task/a": None, "a-task/a/b.txt": b"new"}
    assert back.result == {"path": "a/b.txt", "bytes": 3, "sha256": hashlib.sha256(b"new").hexdigest()}
    assert (codes, fault.code) == ({Code.INVALID_INPUT}, Code.NEEDS_PERSON)
    assert "--workspace" in fault.reason
