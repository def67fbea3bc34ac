#!/bin/sh
# Makes sure that the namespace exists and answers. An existing one is left as it is, with the
# retention that it has.
set -eu

: "${TEMPORAL_ADDRESS:?}" "${TEMPORAL_NAMESPACE:?}"
retention=${NAMESPACE_RETENTION:-30d}

# Runs a command until it succeeds, for a minute at most.
try() {
    attempt=0
    until "$@" >/dev/null 2>&1; do
        attempt=$((attempt + 1))
        if [ "$attempt" -ge 60 ]; then
            echo "gave up after $attempt attempts: $*" >&2
            "$@"
            exit 1
        fi
        sleep 1
    done
}

try temporal operator cluster health

if temporal operator namespace describe -n "$TEMPORAL_NAMESPACE" >/dev/null 2>&1; then
    echo "Namespace $TEMPORAL_NAMESPACE exists."
else
    temporal operator namespace create -n "$TEMPORAL_NAMESPACE" --retention "$retention"
    echo "Namespace $TEMPORAL_NAMESPACE made; closed Sessions are kept for $retention."
fi

# The frontend takes notice of a new namespace after some seconds.
try temporal workflow list -n "$TEMPORAL_NAMESPACE" --limit 1
