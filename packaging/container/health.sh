#!/bin/sh
# The health check of the image: exit code 0 if the server in this container is alive. Not ready: a server without a
# majority is healthy, and waits. curl, since a start of Node takes a second of a busy machine each time.
set -eu
where="127.0.0.1:${LEASEHOLD_LISTEN##*:}/livez"
if [ -n "${LEASEHOLD_TLS_CA:-}" ]; then
  set -- --cacert "$LEASEHOLD_TLS_CA" "https://$where"
else
  set -- "http://$where"
fi
exec curl --fail --silent --show-error --output /dev/null --noproxy '*' --max-time 8 "$@"
