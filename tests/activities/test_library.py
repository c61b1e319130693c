"""The library: an index that follows its folder, reads nothing twice, and cannot be hurt by what it reads."""

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from activities.errors import Busy
from activities.toolbox.documents.library import MAX_LIBRARIES, MAX_TOTAL, TICK, Libraries, Library
from activities.toolbox.documents.search import Query, search
from activities.toolbox.injection import Documents
from tests.activities.pdfs import BROKEN, pdf


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
    """The library of that folder, read once."""
    made = Library(root)
    names(made, "apples")
    return made


def names(library: Library, *terms: str) -> list[str]:
    """Which documents hold the terms now."""
    with library.fresh():
        return [match.name for match in library.find(terms, 20)]


def test_each_document_is_read_once(library: Library) -> None:
    """What has not changed is not read again, however often it is searched."""
    for _ in range(3):
        names(library, "bees")

    assert library.reads == 4


def change(path: Path) -> None:
    path.write_text("Owls see at night.")


def change_at_once(path: Path) -> None:
    before = path.stat()
    path.write_text("Owls.\n".ljust(before.st_size))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace(path: Path) -> None:
    (path.parent / "new").write_text("Owls see at night.")
    (path.parent / "new").rename(path)


def add(path: Path) -> None:
    (path.parent / "new.md").write_text("Owls see at night.")


def make_folder(path: Path) -> None:
    (path.parent / "inner").mkdir()
    change(path.parent / "inner" / "new.txt")


@pytest.mark.parametrize(
    "touch",
    [change_at_once, add, *(pytest.param(one, marks=pytest.mark.full) for one in (change, replace, make_folder))],
)
def test_what_is_new_or_changed_is_read(root: Path, library: Library, touch: Callable[[Path], None]) -> None:
    """Also when size and time of change are those of before; and nothing else is read again."""
    touch(root / "b.txt")

    assert len(names(library, "owls")) == 1
    assert library.reads == 5


@pytest.mark.parametrize(
    "touch",
    [
        Path.unlink,
        pytest.param(change, marks=pytest.mark.full),
        pytest.param(lambda path: path.rename(path.with_suffix(".bak")), marks=pytest.mark.full),
    ],
)
def test_what_is_gone_is_not_found(root: Path, library: Library, touch: Callable[[Path], None]) -> None:
    """The index forgets what the folder no longer has."""
    touch(root / "b.txt")

    assert names(library, "honey") == []


def test_a_renamed_document_has_its_new_name(root: Path, library: Library) -> None:
    """A hit leads to a file that is there."""
    (root / "b.txt").rename(root / "e.txt")

    assert names(library, "honey") == ["e.txt"]


def test_a_change_right_after_the_reading_is_noticed(root: Path, library: Library) -> None:
    """A file that was written in the same moment is not trusted: its time may not tell two versions apart."""
    (root / "e.txt").write_text("One.")
    names(library, "one")
    (root / "e.txt").write_text("Two.")

    assert names(library, "two") == ["e.txt"]


def test_a_document_that_became_readable_is_read(root: Path, library: Library) -> None:
    """A failure is remembered only as long as the file stays as it is."""
    (root / "e.pdf").write_bytes(b"not yet")
    names(library, "elks")
    (root / "e.pdf").write_bytes(pdf("Elks are large."))

    assert names(library, "elks") == ["e.pdf"]


def test_a_bad_document_is_not_tried_again(root: Path, library: Library) -> None:
    """What cannot be read costs its time once."""
    (root / "e.pdf").write_bytes(BROKEN["half a file"]())
    time.sleep(2 * TICK / 1e9)
    for _ in range(3):
        names(library, "bees")

    assert library.reads == 5


def test_a_bad_document_is_tried_again_in_the_end(root: Path) -> None:
    """It may have failed because the machine was busy."""
    (root / "e.pdf").write_bytes(BROKEN["half a file"]())
    time.sleep(2 * TICK / 1e9)
    library = Library(root, forgive=0)
    for _ in range(3):
        names(library, "bees")

    assert library.reads == 5 + 2


def test_the_words_follow_the_documents(root: Path, library: Library) -> None:
    """A spelling is not corrected to a word that is gone."""
    with library.fresh():
        before = "honey" in library.vocabulary
    (root / "b.txt").unlink()

    with library.fresh():
        assert (before, "honey" in library.vocabulary) == (True, False)


def test_a_folder_that_vanished_is_empty(root: Path, library: Library) -> None:
    """No error, and nothing of what was there."""
    root.rename(root.with_name("elsewhere"))

    with library.fresh():
        assert library.is_empty


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

    assert left == [3, 2, 1, 0, 0]


def test_no_hit_in_a_half_read_folder_is_no_answer(root: Path) -> None:
    """Before everything was read, nothing can be said not to be there."""
    documents = Documents(root, Libraries(seconds=0))

    with pytest.raises(Busy, match="3 documents are not read yet"):
        search(Query(query="zebra"), documents)


def test_hits_in_a_half_read_folder_say_what_is_missing(root: Path) -> None:
    """What was found already is not held back."""
    found = search(Query(query="apples"), Documents(root, Libraries(seconds=0)))

    assert found.skipped == ["3 new documents: there was no time yet, search again"]


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
    """What stands in one task's folder is not found in another's."""
    libraries = Libraries()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text(f"Only in {name}.")

    assert names(libraries.of(tmp_path / "one"), "two") == []


def test_the_same_folder_has_the_same_library(tmp_path: Path) -> None:
    """Two tasks on one folder share its index."""
    libraries = Libraries()

    assert libraries.of(tmp_path) is libraries.of(tmp_path)


def test_only_the_last_libraries_are_kept(tmp_path: Path) -> None:
    """However many folders tasks choose, memory stays bounded."""
    libraries = Libraries()
    first = libraries.of(tmp_path)
    for number in range(MAX_LIBRARIES):
        libraries.of(tmp_path / str(number))

    assert libraries.of(tmp_path) is not first
