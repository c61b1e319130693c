#!/bin/sh
# Wait until the server serves, and make the namespace unless it is there.
# Reads TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, RETENTION.
set -eu

tries=60
until said=$(temporal operator cluster health 2>&1); do
	tries=$((tries - 1))
	if [ "$tries" -eq 0 ]; then
		echo "The server at $TEMPORAL_ADDRESS does not serve after two minutes ($said): look into its log." >&2
		exit 1
	fi
	sleep 2
done
temporal operator namespace describe >/dev/null 2>&1 || temporal operator namespace create --retention "$RETENTION"
