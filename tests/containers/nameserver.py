"""Answers each question of names with "there is none": podman asks this machine's nameservers, which are out of reach.

It runs in the namespaces of `namespace.sh`, at the addresses of these nameservers; without an answer, each program that
looks for more than an address would wait for its timeout.
"""

import re
import selectors
import socket
import subprocess
from pathlib import Path

NO_SUCH_NAME = 3
ANSWER = 0x8180


def main() -> None:
    """Serve until the namespaces end."""
    selector = selectors.DefaultSelector()
    for address in re.findall(r"^nameserver\s+(\S+)", Path("/etc/resolv.conf").read_text(), flags=re.MULTILINE):
        subprocess.run(["ip", "address", "add", address, "dev", "lo"], check=False)  # loopback ones are there
        listening = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
        listening.bind((address, 53))
        selector.register(listening, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            assert isinstance(key.fileobj, socket.socket)
            question, asker = key.fileobj.recvfrom(4096)
            counts = question[4:6] + bytes(6)
            end = question.find(b"\0", 12) + 5
            key.fileobj.sendto(question[:2] + (ANSWER | NO_SUCH_NAME).to_bytes(2) + counts + question[12:end], asker)


if __name__ == "__main__":
    main()
