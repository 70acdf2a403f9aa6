#!/usr/bin/env bash
# run.sh of ../e2e for a fault test, and then: no process of the test is left, and no abstract socket that is nobody else's.
#
#   fault.sh [options of run.sh] -- PROGRAM [ARGUMENT...]
set -u
mark=$$.$RANDOM$RANDOM
FAULT_RUN=$mark "$(dirname "$0")"/../e2e/run.sh "$@" || exit

strays() { grep -lzsx "FAULT_RUN=$mark" /proc/[0-9]*/environ; }
# Sockets that no living process outside of this test holds. Other tests may run at the same time.
sockets() {
  awk '$NF ~ /^@slipring-/ { print $7, $NF }' /proc/net/unix | while read -r inode name; do
    ls -l /proc/[0-9]*/fd 2>/dev/null | grep -qF "socket:[$inode]" || echo "$name"
  done
}
for try in 1 2 3 4 5; do
  left=$(strays; sockets)
  [ -z "$left" ] && exit 0
  sleep 0.2
done
echo "FAILED: left behind: $left" >&2
exit 1
