#!/bin/sh
# Make the server's two databases, or bring them to the version of the tool; running it again changes nothing.
# Reads POSTGRES_SEEDS, DB_PORT, POSTGRES_USER, POSTGRES_PWD.
set -eu

export SQL_PASSWORD="$POSTGRES_PWD"

database() {
	name=$1
	schema=$2
	tool="temporal-sql-tool --plugin postgres12 --ep $POSTGRES_SEEDS -p $DB_PORT -u $POSTGRES_USER --db $name"
	$tool create
	$tool setup-schema -v 0.0
	$tool update-schema --schema-name "postgresql/v12/$schema"
}

database temporal temporal
database temporal_visibility visibility
