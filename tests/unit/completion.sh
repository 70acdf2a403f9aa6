#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What completes the launcher's commands offers what their --help lists, in each shell that is installed; and its files are taken as
# these shells take them. Usage: completion.sh LAUNCHER BUILD_FOLDER
set -euo pipefail
launcher=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HOME="$work/home" SLIPRING_TABLES="$build/slipring-tables" SLIPRING_CONF_FILE=/dev/null
mkdir "$work/home" "$work/here"
cd "$work/here"
mkdir folder
: >file.jsonl

fail() {
    echo "completion.sh: $*" >&2
    exit 1
}

# The options that a --help names at the beginning of a line, one a line.
options_of() { "$launcher" "$1" --help | sed -nE 's/^ *(-[a-z]|--[a-z][a-z-]*)([[ ,=].*)?$/\1/p'; }

commands=$("$launcher" --help | sed -nE '/^(usage:|      ) slipring [a-z]/s/^.{6} slipring ([a-z]+) .*/\1/p')
[ "$(wc -w <<<"$commands")" -ge 10 ] || fail "--help lists: $commands"

breaks=$' \t\n"\'><=;|&(:' # bash's own COMP_WORDBREAKS
# complete_bash LINE: what bash offers at its end, sorted.
complete_bash() {
    bash --norc -c '. "$1" && COMP_LINE=$2 COMP_POINT=${#2} COMP_WORDBREAKS=$3 && _slipring && printf "%s\n" "${COMPREPLY[@]}"' \
        bash "$work/bash" "$1" "${2-$breaks}" 2>>"$work/err" | sort
}

# As a shell would call it, with functions that print in the place of zsh's own.
complete_zsh() {
    zsh -f -c '
        compdef() { :; }
        for f in _arguments _describe compadd _files _normal; do functions[$f]="print -rl -- \"\$@\""; done
        _describe() { print -rl -- ${(P)2%%:*}; }
        . "$1"
        words=(${(z)2}); [[ $2 != *" " ]] || words+=("")
        CURRENT=$#words
        _slipring' zsh "$work/zsh" "$1" 2>>"$work/err" | sed -nE "s/^\*?(\([^)]*\))?(-[a-z]|--[a-z-]*[a-z])(=?-?\[.*)?$/\2/p; s/^([a-z]+)$/\1/p" | sort
}
complete_fish() { fish --no-config -c 'source $argv[1]; complete -C "$argv[2]"' "$work/fish" "$1" 2>>"$work/err" | cut -f1 | sort; }

# has SHELL LINE WORD...: what is offered has all of these.
has() {
    local shell=$1 line=$2 word
    "complete_$shell" "$line" >"$work/offered"
    shift 2
    for word; do
        grep -qxF -e "$word" "$work/offered" || fail "$shell: \"$line\" is not offered $word, but $(paste -sd' ' "$work/offered"); $(cat "$work/err")"
    done
}
only() {
    has "$@"
    [ "$(wc -l <"$work/offered")" -eq $(($# - 2)) ] || fail "$1: \"$2\" is offered $(paste -sd' ' "$work/offered")"
}

tried=0
for shell in bash zsh fish; do
    "$launcher" completion $shell >"$work/$shell"
    [ -s "$work/$shell" ] || fail "nothing for $shell"
    : >"$work/err"
    command -v $shell >/dev/null || continue
    tried=$((tried + 1))
    $shell -n "$work/$shell" || fail "$shell does not take it"
    # shellcheck disable=SC2086 # words
    has $shell "slipring " $commands
    for command in $commands; do
        [ -x "$build/slipring-$command" ] || case $command in run | softgpu | env | completion) ;; *) continue ;; esac # not built
        # shellcheck disable=SC2046 # words
        has $shell "slipring $command -" $(options_of $command)
    done
    [ ! -s "$work/err" ] || fail "$shell: $(cat "$work/err")"
done

only bash "slipring re" report
only bash "slipring run --re" --record
only bash "slipring run --record " folder
has bash "slipring run --record=" folder
only bash "slipring report file" file.jsonl
has bash "slipring report file.jsonl -" --html
only bash "slipring run --set LOG=" off error warn info debug
only bash "slipring run --set=log=i" info
only bash "slipring run --set LOG_F" LOG_FILE= LOG_FORMAT=
only bash "slipring run --set log_fo" log_format=
has bash "slipring run --set log=info -- prin" printf
has bash "slipring run -- printf file" file.jsonl
only bash "slipring completion z" zsh
COMPLETE=$(complete_bash "slipring run --set=LOG=i" $' \t\n') && [ "$COMPLETE" = --set=LOG=info ] || fail "bash, without = between words: $COMPLETE"
if command -v fish >/dev/null; then
    only fish "slipring run --set LOG_FO" LOG_FORMAT=json LOG_FORMAT=text
    has fish "slipring run -- prin" printf
    only fish "slipring completion z" zsh
fi
echo "$tried shells"
