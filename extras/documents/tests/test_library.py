"""The library: an index that follows its folder, reads nothing twice, and cannot be hurt by what it reads."""

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from activities.errors import Busy
from activities.toolbox.injection import Documents
from extras.documents.library import MAX_LIBRARIES, MAX_TOTAL, TICK, Libraries, Library
from extras.documents.search import Query, search
from extras.documents.tests.pdfs import BROKEN, pdf


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with one document of each kind, none of them new."""
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "a.md").write_text("# Apples\n\nApples are red.\n")
    (folder / "b.txt").write_text("Bees\n\nBees make honey.\n")
    (folder / "c.html").write_text("<h1>Cats</h1><p>Cats purr.")
    (folder / "d.pdf").write_bytes(pdf("Dogs bark."))
    time.sleep(2 * TICK / 1e9)
    return folder


@pytest.fixture
def library(root: Path) -> Library:
    made = Library(root)
    names(made, "apples")
    return made


def names(library: Library, *terms: str) -> list[str]:
    with library.fresh():
        return [match.name for match in library.find(terms, 20)]


def change(path: Path) -> None:
    path.write_text("Owls see at night.")


def change_at_once(path: Path) -> None:
    before = path.stat()
    path.write_text("Owls.\n".ljust(before.st_size))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def add(path: Path) -> None:
    (path.parent / "inner").mkdir()
    change(path.parent / "inner" / "new.md")


def replace(path: Path) -> None:
    add(path)
    (path.parent / "inner" / "new.md").rename(path)


@pytest.mark.parametrize(
    "touch", [change_at_once, add, *(pytest.param(one, marks=pytest.mark.full) for one in (change, replace))]
)
def test_what_is_new_or_changed_is_read(root: Path, library: Library, touch: Callable[[Path], None]) -> None:
    """Also when size and time of change are those of before; and nothing else is read again, nor what is gone found."""
    touch(root / "b.txt")

    assert len(names(library, "owls")) == 1
    assert library.reads == 5
    assert names(library, "honey") == (["b.txt"] if touch is add else [])


def test_a_document_is_found_as_it_is_now(root: Path, library: Library) -> None:
    """A hit leads to a file that is there, also of one that was renamed, and a spelling to a word that is there.

    A file that was written in the same moment is not trusted: its time may not tell two versions apart.
    A failure is remembered only as long as the file stays as it is. A folder that vanished is empty.
    """
    with library.fresh():
        known = [word in library.vocabulary for word in ("honey", "purr")]
    (root / "c.html").unlink()
    (root / "b.txt").rename(root / "e.txt")
    (root / "f.txt").write_text("One.")
    (root / "g.pdf").write_bytes(b"not yet")
    before = [names(library, word) for word in ("honey", "purr", "one", "elks")]
    (root / "e.txt").rename(root / "e.bak")
    (root / "f.txt").write_text("Two.")
    (root / "g.pdf").write_bytes(pdf("Elks are large."))
    after = [names(library, word) for word in ("honey", "two", "elks")]
    with library.fresh():
        kept = [word in library.vocabulary for word in ("honey", "purr", "elks")]
    root.rename(root.with_name("elsewhere"))

    assert before == [["e.txt"], [], ["f.txt"], []]
    assert after == [[], ["f.txt"], ["g.pdf"]]
    assert (known, kept) == ([True, True], [False, False, True])
    with library.fresh():
        assert library.is_empty


@pytest.mark.parametrize(("forgive", "reads"), [(None, 5), (0, 5 + 2)])
def test_a_bad_document_is_not_tried_again_but_in_the_end(root: Path, forgive: float | None, reads: int) -> None:
    """What has not changed is read once, and what cannot be read costs its time once."""
    (root / "e.pdf").write_bytes(BROKEN["half a file"]())
    time.sleep(2 * TICK / 1e9)
    library = Library(root) if forgive is None else Library(root, forgive=forgive)
    for _ in range(3):
        names(library, "bees")

    assert library.reads == reads


def test_many_threads_share_one_library(root: Path) -> None:
    """Tools run in threads: everyone finds everything, and each file is read once."""
    documents = Documents(root)
    queries = ["apples", "honey", "purr", "bark"] * 8
    with ThreadPoolExecutor(8) as threads:
        hits = list(threads.map(lambda query: len(search(Query(query=query), documents).hits), queries))

    assert (hits, documents.library.reads) == ([1] * len(queries), 4)


def test_who_waits_too_long_is_told_to_come_back(root: Path) -> None:
    """A call that cannot have the index is `busy`, and does not hang."""
    library = Library(root, patience=0.01)
    holding, done = threading.Event(), threading.Event()

    def hold() -> None:
        with library.fresh():
            holding.set()
            done.wait(60)

    with ThreadPoolExecutor(1) as threads:
        threads.submit(hold)
        holding.wait(60)
        with pytest.raises(Busy), library.fresh():
            raise AssertionError("two threads have it")
        done.set()


def test_a_search_goes_on_where_time_was_up(root: Path) -> None:
    """A folder that takes long is read over several calls, each of which says what is missing."""
    library, left = Library(root, seconds=0), list[int]()
    for _ in range(5):
        with library.fresh():
            left.append(library.unread)
    found = search(Query(query="apples"), Documents(root, Libraries(seconds=0)))

    assert left == [3, 2, 1, 0, 0]
    assert found.skipped == ["3 new documents: there was no time yet, search again"]
    with pytest.raises(Busy, match="3 documents are not read yet"):
        search(Query(query="zebra"), Documents(root, Libraries(seconds=0)))


@pytest.mark.full
def test_a_folder_without_end_is_read_in_part(root: Path) -> None:
    """What is over the limit is left out, said, and not read again and again."""
    for number in range(10):
        (root / f"x{number}.txt").write_text("word " * 380_000)
    time.sleep(2 * TICK / 1e9)
    library = Library(root, seconds=60)
    for _ in range(2):
        names(library, "word")

    assert library.reads == 13
    assert library.skipped == [f"x9.txt and all after it: the folder has more than {MAX_TOTAL:,} characters"]


def test_folders_have_libraries_of_their_own(tmp_path: Path) -> None:
    """What stands in one task's folder is not found in another's; two tasks on one folder share its index."""
    libraries = Libraries()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text(f"Only in {name}.")
    first = libraries.of(tmp_path / "one")

    assert names(first, "two") == []
    assert libraries.of(tmp_path / "one") is first
    for number in range(MAX_LIBRARIES):
        libraries.of(tmp_path / str(number))
    assert libraries.of(tmp_path / "one") is not first
