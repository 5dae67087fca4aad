#!/bin/sh
# The health check of the image: exit code 0 where the server in this container is alive. Alive, not ready: without a
# majority a server is in good health and waits. A Node of its own would take a second of a busy machine each time.
set -eu
where="127.0.0.1:${LEASEHOLD_LISTEN##*:}/livez"
if [ -n "${LEASEHOLD_TLS_CA:-}" ]; then
  set -- --cacert "$LEASEHOLD_TLS_CA" "https://$where"
else
  set -- "http://$where"
fi
exec curl --fail --silent --show-error --output /dev/null --noproxy '*' --max-time 8 "$@"
