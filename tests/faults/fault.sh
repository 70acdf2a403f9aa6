#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh of ../e2e for a fault test, and then: no process of the test is left, and no abstract socket that is nobody else's.
#
#   fault.sh [options of run.sh] -- PROGRAM [ARGUMENT...]
set -u
mark=$$.$RANDOM$RANDOM
FAULT_RUN=$mark "$(dirname "$0")"/../e2e/run.sh "$@" || exit

strays() { grep -lzsx "FAULT_RUN=$mark" /proc/[0-9]*/environ; }
# Sockets that no living process holds. Other tests may run at the same time, and their processes come and go between two looks: what is
# left is what every look finds.
sockets() {
  local name number held=() open=()
  while read -r _ _ _ _ _ _ number name; do
    [[ $name != @slipring-* ]] || open+=("$number $name")
  done </proc/net/unix
  [ ${#open[@]} -gt 0 ] || return
  mapfile -t held < <(find /proc/[0-9]*/fd -maxdepth 1 -lname 'socket:*' -printf '%l\n' 2>/dev/null)
  for name in "${open[@]}"; do
    [[ " ${held[*]} " == *" socket:[${name%% *}] "* ]] || echo "${name#* }"
  done
}
seen=$(sockets)
for try in 1 2 3 4 5; do
  [ -z "$(strays)$seen" ] && exit 0
  sleep 0.2
  seen=$(grep -xF "$seen" <<<"$(sockets)")
done
echo "FAILED: left behind: $(strays) $seen" >&2
exit 1
