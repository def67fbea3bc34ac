#!/bin/sh
# Creates Temporal's two databases and brings their schema up to date. Changes nothing that is
# there already, so it runs before every start and before every upgrade.
set -eu

: "${SQL_HOST:?}" "${SQL_PORT:?}" "${SQL_USER:?}" "${SQL_PASSWORD:?}" "${SQL_PLUGIN:?}"
schemas=/etc/temporal/schema/postgresql/v12

# The password is read from SQL_PASSWORD, so that it appears in no list of processes.
sql() {
    temporal-sql-tool --plugin "$SQL_PLUGIN" --ep "$SQL_HOST" -p "$SQL_PORT" -u "$SQL_USER" "$@"
}

prepare() {
    sql --db "$1" create
    sql --db "$1" setup-schema -v 0.0
    sql --db "$1" update-schema -d "$schemas/$2/versioned"
}

prepare "${DBNAME:-temporal}" temporal
prepare "${VISIBILITY_DBNAME:-temporal_visibility}" visibility
echo "Temporal's databases are ready."
