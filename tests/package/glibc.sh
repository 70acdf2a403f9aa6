#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The library needs no function that glibc 2.28 lacks. Versions above 2.28 come only from functions that 2.28 has under an
# older version: packaging that builds for 2.28 binds those. The last line states the highest version that this build needs.
#
#   glibc.sh LIBRARY
set -euo pipefail
# Moved into libc.so.6 (2.32, 2.34), functions that were macros (2.33), or another name for the same (2.38). strerrordesc_np:
# 2.32; strerror is in its place there.
moved=' dladdr dlclose dlerror dlinfo dlopen dlsym pthread_create pthread_detach pthread_join pthread_key_create
    pthread_mutex_timedlock pthread_mutex_trylock pthread_once pthread_rwlock_rdlock pthread_rwlock_trywrlock
    pthread_rwlock_unlock pthread_rwlock_wrlock pthread_setname_np pthread_setspecific pthread_sigmask stat fstat
    lstat __isoc23_strtol __isoc23_strtoll __isoc23_strtoul __isoc23_strtoull __isoc23_sscanf strerrordesc_np '
moved=$(tr -s '\n ' ' ' <<<"$moved")

needs=$(readelf -W --dyn-syms "$1" | sed -nE 's/.* UND ([^ @]+)@GLIBC_([0-9.]+).*/\2 \1/p' | sort -V)
[ -n "$needs" ] || { echo "FAILED: no versions in $1" && exit 1; }
status=0
while read -r version name; do
    [ "$(printf '%s\n' 2.28 "$version" | sort -V | tail -n 1)" != 2.28 ] || continue
    case $moved in
    *" $name "*) ;;
    *) echo "FAILED: $name is of glibc $version, and 2.28 has nothing in its place" && status=1 ;;
    esac
done <<<"$needs"
echo "needs GLIBC_$(tail -n 1 <<<"$needs" | cut -d' ' -f1)"
exit $status
