"""A worker without the extra `documents`: it starts, and each call that needs the extra says what to install."""

import json
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest

from activities.toolbox.extra import NEEDED_FOR, missing
from extras.documents.tests.pdfs import pdf

ROOT = Path(__file__).parents[3]
CALLS = """
import asyncio, json, sys
from pathlib import Path
from extras.documents import html
from extras.documents.read_document import DocumentName, read_document
from extras.documents.search import Query, search
from activities.toolbox.reasoning.summarise import LongText, summarise
from replan import Documents, NeedsPerson

documents = Documents(Path(sys.argv[1]))

def said(call):
    try:
        return call()
    except NeedsPerson as error:
        return [error.fault.code, error.fault.reason]

print(json.dumps({
    "text": said(lambda: read_document(DocumentName(name="care.md"), documents).text),
    "search": said(lambda: search(Query(query="wax"), documents).skipped),
    "pdf": said(lambda: read_document(DocumentName(name="menu.pdf"), documents).text),
    "html": said(lambda: read_document(DocumentName(name="page.html"), documents).text),
    "page": said(lambda: html.text_of("<p>Wax it.").text),
    "summary": said(lambda: summarise(LongText(text="Oak is hard. Wax is soft. Oil is thin.", sentences=1)).summary),
}))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has all packages of this one, but those of the extra."""
    home = tmp_path_factory.mktemp("without")
    venv.create(home, symlinks=True, with_pip=False)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(home), "platbase": str(home)}))
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if entry.name not in NEEDED_FOR:
            (packages / entry.name).symlink_to(entry)
    return home / "bin" / "python"


PACKAGES = {"pdf": "pypdf", "html": "lxml", "page": "lxml", "summary": "sumy"}


def test_a_call_that_needs_the_extra_stops_for_an_operator(python: Path, tmp_path: Path) -> None:
    """It is a mistake of the deployment, which no other plan can mend; the reason is the remedy."""
    (tmp_path / "care.md").write_text("# Oak\n\nWax it.\n")
    (tmp_path / "menu.pdf").write_bytes(pdf("Soup"))
    (tmp_path / "page.html").write_text("<p>Wax it.")
    done = subprocess.run([python, "-c", CALLS, tmp_path], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    calls = json.loads(done.stdout)

    assert calls["text"] == "# Oak\n\nWax it."
    assert [note.split(":")[0] for note in calls["search"]] == ["menu.pdf", "page.html"]
    assert all("replan[documents]" in note for note in calls["search"])
    for call, package in PACKAGES.items():
        code, reason = calls[call]
        assert code == "needs_person"
        assert reason.startswith(f"This worker has no {package}, ") and "pip install 'replan[documents]'" in reason
    assert missing() is None  # here, where the gate runs with all of it


@pytest.mark.full
def test_check_says_in_one_sentence_what_is_missing(python: Path, tmp_path: Path) -> None:
    """The worker loads, offers every kind, and names the packages and the command that installs them."""
    done = subprocess.run(
        [python, "worker.py", "--check", "--state", tmp_path], cwd=ROOT, capture_output=True, text=True, check=False
    )
    missing, _verdict, _tasks = done.stdout.splitlines()[-3:]

    assert (done.returncode, done.stderr) == (0, "")
    assert missing.startswith("Not installed: lxml, pypdf, sumy.")
    assert "pip install 'replan[documents]'" in missing
