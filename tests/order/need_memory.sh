#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# need_memory.sh GIB COMMAND...: runs the command, or ends with 77 (skipped) when less memory than that is free.
set -u
free=$(awk '/^MemAvailable/ { print int($2 / 1048576) }' /proc/meminfo)
shm=$(df -Pk /dev/shm | awk 'NR == 2 { print int($4 / 1048576) }')
if [ "$free" -lt "$1" ] || [ "$shm" -lt "$1" ]; then
  echo "skipped: $1 GiB are needed, $free GiB of memory and $shm GiB of /dev/shm are free"
  exit 77
fi
shift
exec "$@"
