"""Histories in all their forms, and files that hold none: each ends in a sentence."""

import gzip
import json
import os
import random
import subprocess
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from temporalio.api.history.v1 import HistoryEvent

from client.problem import Problem
from extras.audit.report import Audit, AuditReport
from extras.audit.sources import Begin, Extent, Item, UnreadableHistory, files_of, of_files
from extras.audit.tests.made import Made
from tests.console.replaying import HISTORIES
from tests.processes import ROOT
from tests.unprivileged import open_folder, unprivileged

SAVED = next(file for file in HISTORIES if file.stem == "retried")
TEXT = SAVED.read_bytes()
DOCUMENT = json.loads(TEXT)
EVENTS = len(DOCUMENT["events"])


def read(file: Path) -> list[Item]:
    return list(of_files([file], Extent()))


def counts(items: list[Item]) -> tuple[int, int, list[str]]:
    """How many histories and events there are, and what could not be read."""
    began = sum(isinstance(item, Begin) for item in items)
    events = sum(isinstance(item, HistoryEvent) for item in items)
    return began, events, [item.reason for item in items if isinstance(item, UnreadableHistory)]


def audited(*files: Path) -> AuditReport:
    """The report on files."""
    audit = Audit()
    for item in of_files(files, Extent()):
        audit.take(item)
    return audit.report()


def zipped(file: Path, *texts: bytes) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, text in enumerate(texts):
            archive.writestr(f"{number}.json", text)


LINE = json.dumps(DOCUMENT).encode()
ONE = json.dumps(DOCUMENT["events"]).encode()
FORMS: dict[str, tuple[Callable[[Path], object], int]] = {
    "as export wrote it": (lambda file: file.write_bytes(TEXT), 1),
    "on one line": (lambda file: file.write_bytes(LINE), 1),
    "with a byte order mark": (lambda file: file.write_bytes(b"\xef\xbb\xbf\n " + TEXT), 1),
    "in UTF-16": (lambda file: file.write_bytes(TEXT.decode().encode("utf-16")), 1),
    "under the key history": (lambda file: file.write_text(json.dumps({"history": DOCUMENT})), 1),
    "as a list of events": (lambda file: file.write_bytes(ONE), 1),
    "as JSON lines": (lambda file: file.write_bytes(LINE + b"\n" + LINE + b"\n\n" + LINE), 3),
    "as a list of histories": (lambda file: file.write_bytes(b"[" + LINE + b"," + LINE + b"]"), 2),
    "compressed": (lambda file: file.write_bytes(gzip.compress(TEXT)), 1),
    "binary": (lambda file: file.write_bytes(Made().call("find", "x" * 500_000).end().binary), 1),
    "as an archive": (lambda file: zipped(file, TEXT, gzip.compress(TEXT), LINE + b"\n" + LINE), 4),
}


@pytest.mark.parametrize("form", FORMS)
def test_histories_are_read_in_every_form(tmp_path: Path, form: str) -> None:
    """Whatever the name of the file is; a binary one is a History message, as Temporal's Go tools keep it."""
    write, histories = FORMS[form]
    file = tmp_path / "histories"
    write(file)

    assert counts(read(file)) == (histories, 5 if form == "binary" else histories * EVENTS, [])


BAD_EVENT = "has an event that cannot be read, number 1 ("
BROKEN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "text": (b"hello", "holds no history: it is neither JSON nor a binary History"),
    "zeros": (bytes(1000), "holds no history: it is neither JSON nor a binary History"),
    "other JSON": (b'{"name": [1, 2]}', "holds no history: no list `events` with events is in it"),
    "no events": (b'{"events": []}', "holds no history: no list `events` with events is in it"),
    "cut in a text": (TEXT[:5000], "is cut off in the middle of a text"),
    "cut before the end": (LINE[:-2], "is cut off: its last event is not complete"),
    "deep": (b'{"events": [' + b'{"a":' * 100_000, "is nested more than 200 levels deep"),
    "brackets": (b'{"events": [{]}', "is no JSON: a bracket is closed that is not open"),
    "invalid UTF-8": (TEXT.replace(b"eventTime", b"event\xffTime", 1), BAD_EVENT),
    "a lone surrogate as a type": (b'{"events": [{"eventType": "\\ud800"}]}', BAD_EVENT),
    "a lone surrogate as a key": (b'{"events": [{"\\ud800": 1}]}', BAD_EVENT),
    "a lone surrogate in a text": (
        b'{"events": [{"workflowTaskScheduledEventAttributes": {"taskQueue": {"name": "\\udc00"}}}]}',
        BAD_EVENT,
    ),
    "no number": (b'{"events": [{"eventId": NaN}]}', BAD_EVENT),
    "a long number": (b'{"events": [{"eventId": ' + b"9" * 5000 + b"}]}", BAD_EVENT),
    "cut UTF-16": (TEXT.decode().encode("utf-16")[:4001], "is no text in UTF-16 ("),
    "an event that is a list": (b'{"events": [{"eventId": [1]}]}', BAD_EVENT),
    "a cut archive": (b"PK\x03\x04" + bytes(50), "is a broken archive ("),
    "a cut gzip": (gzip.compress(TEXT)[:200], "is a broken archive ("),
    "a cut message": (Made().call("find").end().binary[:-3], "is cut off: its last event is not complete"),
    "a huge message": (b"\n\xff\xff\xff\xff\x7f", "has an event of more than 16 MB, or is no history"),
    "a broken message": (b"\n\x03\xff\xff\xff", BAD_EVENT),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_history_ends_in_a_sentence(tmp_path: Path, name: str) -> None:
    """And says what is wrong."""
    text, sentence = BROKEN[name]
    file = tmp_path / "broken.json"
    file.write_bytes(text)
    [reason] = counts(read(file))[2]

    assert reason.startswith(sentence)


def test_a_history_that_is_broken_leaves_the_others(tmp_path: Path) -> None:
    """In JSON lines a line, in an archive a file; and no finding is made in what is broken."""
    broken = LINE.replace(b'"ACTIVITY', b'"ACT\xff').replace(b'"eventId": "5"', b'"eventId": [5]')
    lines, archive = tmp_path / "a.jsonl", tmp_path / "b.zip"
    lines.write_bytes(LINE + b"\n" + broken + b"\n" + LINE)
    zipped(archive, LINE, broken, b"", LINE[:3000], LINE)
    report = audited(lines, archive)
    unread = ["a.jsonl:2", "b.zip:1.json", "b.zip:2.json", "b.zip:3.json"]

    assert (report.histories, report.unreadable, report.events) == (4, 4, 4 * EVENTS)
    assert [name.rpartition("/")[2] for name, _ in report.unread] == unread


def test_a_damaged_entry_leaves_the_others(tmp_path: Path) -> None:
    """However an archive is packed."""
    file = tmp_path / "packed.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("0.json", TEXT)
        archive.writestr("1.json", TEXT)
    packed = bytearray(file.read_bytes())
    packed[100:120] = bytes(20)
    file.write_bytes(packed)
    items = read(file)

    assert [item.name.rpartition(":")[2] for item in items if isinstance(item, UnreadableHistory)] == ["0.json"]
    assert counts(items)[1] >= EVENTS


def test_an_archive_that_is_packed_in_another_way_is_broken_and_not_encrypted(tmp_path: Path) -> None:
    """Nobody is sent to look for a password."""
    file = tmp_path / "a.zip"
    zipped(file, TEXT)
    packed = file.read_bytes()
    deflated, unknown = (method.to_bytes(2, "little") for method in (zipfile.ZIP_DEFLATED, 97))
    beginning, directory = packed.index(b"PK\x03\x04") + 8, packed.index(b"PK\x01\x02") + 10
    for place in (beginning, directory):
        assert packed[place : place + 2] == deflated
        packed = packed[:place] + unknown + packed[place + 2 :]
    file.write_bytes(packed)
    [found] = of_files([file], Extent())

    assert isinstance(found, UnreadableHistory) and found.reason.startswith("is broken (")


def test_an_event_without_an_end_takes_little_memory(tmp_path: Path) -> None:
    """Also one that is packed: 40 MB in 40 KB."""
    line, archive = tmp_path / "line.json", tmp_path / "bomb.zip"
    line.write_bytes(b'{"events": [{"x": "' + b"a" * 40 * 2**20)
    zipped(archive, line.read_bytes())
    for file in (line, archive):
        tracemalloc.start()
        found = counts(read(file))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()

        assert found == (0, 0, ["has an event of more than 16 MB"])
        assert most < 100 * 2**20, most


def test_unknown_types_of_events_are_counted_and_passed_over(tmp_path: Path) -> None:
    """A newer server writes what this version does not know."""
    file = tmp_path / "newer.json"
    document = json.loads(TEXT)
    document["events"].insert(3, {"eventId": "4", "eventType": "EVENT_TYPE_OF_TOMORROW", "ofTomorrow": {"deep": [1]}})
    file.write_text(json.dumps(document))
    report = audited(file)

    assert (report.histories, report.unreadable, report.unknown_events) == (1, 0, 1)


def test_a_folder_is_read_with_what_is_in_its_folders(tmp_path: Path) -> None:
    """Files of other sorts are passed over; what is not there is a problem before anything is read."""
    (tmp_path / "deeper").mkdir()
    for name in ("b.json", "deeper/a.jsonl", "README.md", "deeper/c.zip"):
        (tmp_path / name).write_bytes(LINE)

    assert [file.name for file in files_of([tmp_path])] == ["b.json", "a.jsonl", "c.zip"]
    os.mkfifo(tmp_path / "endless.json")
    (tmp_path / "deeper" / "loop").symlink_to(tmp_path)

    assert [file.name for file in files_of([tmp_path])] == ["b.json", "a.jsonl", "c.zip"]
    for wrong in (tmp_path / "nothing.json", tmp_path / "deeper" / "empty"):
        (tmp_path / "deeper" / "empty").mkdir(exist_ok=True)
        with pytest.raises(Problem):
            files_of([wrong])


def test_a_strange_file_costs_itself(tmp_path: Path) -> None:
    """A pipe that nobody writes, a folder, a link to itself: each is named, and the others are read."""
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "loop.json").symlink_to("loop.json")
    (tmp_path / "good.json").write_bytes(TEXT)
    paths = [tmp_path / name for name in ("empty", "pipe.json", "loop.json", "good.json")]
    items = list(of_files(files_of(paths), Extent()))
    reasons = {Path(item.name).name: item.reason for item in items if isinstance(item, UnreadableHistory)}

    assert counts(items)[:2] == (1, EVENTS)
    assert reasons["pipe.json"] == "cannot be read (nobody writes into this pipe)"
    assert reasons["loop.json"].startswith("cannot be read (Too many levels of symbolic links")
    assert reasons["empty"].startswith("has no file whose name ends in")


def test_a_pipe_is_read_like_a_file() -> None:
    """`audit <(gunzip -c FILE)`: what another program writes."""
    read_end, write_end = os.pipe()
    with subprocess.Popen(["cat", str(SAVED)], stdout=write_end):
        os.close(write_end)

        assert counts(read(Path(f"/dev/fd/{read_end}"))) == (1, EVENTS, [])
    os.close(read_end)


def test_a_folder_and_a_file_of_somebody_else_cost_themselves() -> None:
    """They are named, and the files beside them are read."""
    with open_folder() as folder:
        (folder / "closed").mkdir(mode=0)
        (folder / "good.json").write_bytes(TEXT)
        (folder / "none.json").write_bytes(TEXT)
        (folder / "none.json").chmod(0)
        with unprivileged():
            items = list(of_files(files_of([folder]), Extent()))

    assert counts(items)[:2] == (1, EVENTS)
    assert counts(items)[2] == ["cannot be read (Permission denied)"] * 2


@pytest.mark.timeout(900)
@pytest.mark.parametrize("many", [60, pytest.param(3000, marks=pytest.mark.full)])
def test_damaged_histories_never_raise(tmp_path: Path, many: int) -> None:
    """Each with a few bytes that are others."""
    chance, binary = random.Random(7), Made().call("charge", {"a": [1]}, attempt=2).end().binary  # noqa: S311
    audit = Audit()
    file = tmp_path / "damaged"
    for number in range(many):
        text = bytearray(binary if number % 5 else LINE)
        for _ in range(chance.randrange(1, 4)):
            text[chance.randrange(len(text))] = chance.randrange(256)
        file.write_bytes(text)
        for item in read(file):
            audit.take(item)
    report = audit.report()

    assert report.histories + report.unreadable >= many


MANY = """
import sys
from pathlib import Path
from extras.audit.report import Audit, AuditReport
from extras.audit.sources import Extent, of_files
audit = Audit()
for item in of_files([Path(sys.argv[1])], Extent()):
    audit.take(item)
# What getrusage says includes the peak of the process that forked this one.
peak = Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]
print(audit.report().histories, int(peak) // 1024)
"""


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["many.zip", "many.jsonl"])
def test_ten_thousand_histories_take_less_than_200_mb(tmp_path: Path, name: str) -> None:
    """One event is in memory at a time, and of a history what the findings need."""
    texts = [json.dumps(json.loads(file.read_bytes())).encode() for file in HISTORIES]
    many = [texts[number % len(texts)] for number in range(10_000)]
    file = tmp_path / name
    if name == "many.zip":
        zipped(file, *many)
    else:
        file.write_bytes(b"\n".join(many))
    done = subprocess.run([sys.executable, "-c", MANY, str(file)], cwd=ROOT, capture_output=True, text=True, check=True)
    histories, megabytes = map(int, done.stdout.split())

    assert (histories, megabytes < 200) == (10_000, True), megabytes
