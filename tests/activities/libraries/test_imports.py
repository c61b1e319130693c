"""The worker knows the libraries' exceptions by name, and loads no library for that."""

import json
import subprocess
import sys

from tests.libraries import PACKAGES, STANDARD
from tests.processes import ROOT

USED = {"httpx2", "httpcore2", "pydantic", "pydantic_core", "sqlalchemy"}
"""Libraries with which the worker itself works."""
OF_TEMPORAL = {"google", "google.protobuf", "google._upb", "grpc"}
"""What `temporalio` loads: protobuf, and grpc where it is installed."""
PROGRAM = """
import json, sys
import worker, activities.registration
from activities.borders import classify, table_of
classify(KeyError())
for package in sys.argv[1:]:
    table_of(package)
print(json.dumps(sorted(sys.modules)))
"""


def test_the_worker_loads_no_library_for_its_table() -> None:
    """Neither when it starts nor when it reads a table: each costs memory and up to a second."""
    libraries = {*PACKAGES, "boto3", "botocore", "google", "grpc", "redis", "stripe"} - {*STANDARD} - USED
    command = [sys.executable, "-c", PROGRAM, *PACKAGES]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    loaded = {".".join(name.split(".")[:2]) if name.startswith("google.") else name for name in json.loads(done.stdout)}

    assert {
        name for name in loaded if name.partition(".")[0] in libraries and "grpc" not in name
    } - OF_TEMPORAL == set()
