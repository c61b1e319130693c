#!/bin/sh
# The first process of the namespaces in which podman runs: what is in them ends with it.
# Takes the folder of the run, which gets `pid` and the engine's socket `podman`, and a Python.
set -eu
run=$1
python=$2

read -r pid rest </proc/self/stat # of the old /proc, so as others see it
mount -t proc proc /proc
# Podman 4 refuses version 1 with a part of version 2 beside it.
if mountpoint --quiet /sys/fs/cgroup/unified; then umount /sys/fs/cgroup/unified; fi
for folder in /dev/shm /run/containers /run/crun /run/libpod /run/netns; do
	mkdir -p "$folder"
	mount -t tmpfs tmpfs "$folder"
done
ip link set lo up
"$python" "$(dirname "$0")/nameserver.py" &

# Podman leaves this to systemd: see at once whoever starts, and everybody every half a minute.
checks() {
	turn=0
	while sleep 3; do
		turn=$(((turn + 1) % 10))
		if [ "$turn" -eq 0 ]; then which=; else which=--filter=health=starting; fi
		for id in $(podman ps --quiet $which); do podman healthcheck run "$id" || true; done
	done
}
checks >"$run/healthchecks.log" 2>&1 &

echo "$pid" >"$run/pid.new"
mv "$run/pid.new" "$run/pid"
exec catatonit -- podman system service --time=0 "unix://$run/podman"
