#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh of ../programs for a fault test, and then: no process of the test is left, and no abstract socket. Other suites may run on the machine.
#
#   fault.sh [options of run.sh] -- PROGRAM [ARGUMENT...]
set -u
mark=$$.$RANDOM$RANDOM
# Numbers and names of slipring's sockets. Without a number: a connection that is not accepted yet. It has the name of the listening socket,
# which is in the list itself.
open_sockets() {
  local name number
  while read -r _ _ _ _ _ _ number name; do
    [[ $name != @slipring-* || $number = 0 || ${name%-"${TEST_LEFT-none}"} == @slipring-?(others-)@(left|others)-+([0-9]) ]] || echo "$number $name"
  done </proc/net/unix
}
mapfile -t before < <(open_sockets)
FAULT_RUN=$mark "$(dirname "$0")"/../programs/run.sh "$@" || exit

strays() { grep -lzsx "FAULT_RUN=$mark" /proc/[0-9]*/environ; }
# Sockets that are new and that no living process holds. Other tests' processes come and go between two looks: what is left is what every
# look finds.
sockets() {
  local socket held=() new=()
  while read -r socket; do
    [[ " ${before[*]-} " == *" $socket "* ]] || new+=("$socket")
  done < <(open_sockets)
  [ ${#new[@]} -gt 0 ] || return
  mapfile -t held < <(find /proc/[0-9]*/fd -maxdepth 1 -lname 'socket:*' -printf '%l\n' 2>/dev/null)
  for socket in "${new[@]}"; do
    [[ " ${held[*]} " == *" socket:[${socket%% *}] "* ]] || echo "${socket#* }"
  done
}
seen=$(sockets)
for try in 0 1 2 3 4 5; do
  [ $try = 0 ] || { sleep 0.2 && seen=$(grep -xF "$seen" <<<"$(sockets)"); }
  [ -z "$(strays)$seen" ] && exit 0
done
echo "FAILED: left behind: $(strays) $seen" >&2
exit 1
