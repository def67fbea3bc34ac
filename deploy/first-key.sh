#!/bin/sh
# Makes the first API key, with every permission, and prints it once. Does nothing when there is a
# keys file already.
set -eu

if [ -s "${TURNHOLD_KEYS_FILE:?}" ]; then
    echo "There are API keys already. Make another:"
    echo "  docker compose run --rm --no-deps --entrypoint turnhold keys key new NAME"
    exit 0
fi
exec turnhold key new first
