#!/bin/sh
# Make the cluster, with a database of the user's name, in an empty volume, and run the command.
# Reads POSTGRES_USER, POSTGRES_PASSWORD.
set -eu

if [ ! -s "$PGDATA/PG_VERSION" ]; then
	printf '%s\n' "$POSTGRES_PASSWORD" >/tmp/password
	initdb --username="$POSTGRES_USER" --pwfile=/tmp/password --auth-local=trust --auth-host=scram-sha-256 >/dev/null
	rm /tmp/password
	echo "CREATE DATABASE \"$POSTGRES_USER\"" | postgres --single postgres >/dev/null
	echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
fi
exec "$@" -c listen_addresses='*'
