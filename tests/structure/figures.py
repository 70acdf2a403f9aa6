#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The library in figures, for comparing trees: how many files, how long they and their functions are, and how much each
has to know of the others.

  figures.py ROOT...    a column for each source tree

Counted are the library's own sources (base, cache, kernels, plugin, interpose), not what is generated of others.
"""
import os
import re
import statistics
import sys

LAYERS = ("base", "cache", "kernels", "plugin", "interpose")
GENERATED = {"kernels/reduce.ptx"}
SHORT = 60
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">]', re.M)


def sources(root):
    """{path from the root: text}"""
    found = {}
    for layer in LAYERS:
        for folder, _, names in os.walk(os.path.join(root, layer)):
            for name in names:
                path = os.path.relpath(os.path.join(folder, name), root)
                if re.search(r"\.([chS]|def|cu|inc|ptx)$", name) and path not in GENERATED:
                    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
                        found[path] = file.read()
    return found


def written(text):
    """Lines that are not blank."""
    return sum(1 for line in text.splitlines() if line.strip())


def included(files, path):
    """The library's files that it includes, directly."""
    for name in INCLUDE.findall(files[path]):
        for place in (name, os.path.normpath(os.path.join(os.path.dirname(path), name))):
            if place in files:
                yield place
                break


def reached(files, path):
    seen, todo = set(), [path]
    while todo:
        for other in included(files, todo.pop()):
            if other not in seen:
                seen.add(other)
                todo.append(other)
    return seen


def arrows(files):
    """Pairs of plugin's folders, of which one includes something of the other."""
    pairs = set()
    for path in files:
        for other in included(files, path):
            one, two = os.path.dirname(path), os.path.dirname(other)
            if one != two and one.startswith("plugin/") and two.startswith("plugin/"):
                pairs.add((one, two))
    return pairs


def function_lengths(files):
    """Lines between the braces; in this code a function's are at the beginning of a line."""
    for path, text in files.items():
        if path.endswith(".c"):
            begin = None
            lines = text.splitlines()
            for i, line in enumerate(lines):
                if line == "{" and i and lines[i - 1].rstrip().endswith(")"):
                    begin = i
                elif line == "}" and begin is not None:
                    yield i - begin - 1
                    begin = None


def figures(root):
    files = sources(root)
    lengths = list(function_lengths(files))
    headers = [sum(other.endswith(".h") for other in reached(files, path)) for path in files if path.endswith(".c")]
    folders = {os.path.dirname(path) for path in files if path.startswith("plugin/") and path.count("/") > 1}
    return {
        "files": len(files),
        "lines that are not blank": sum(written(text) for text in files.values()),
        f"files of less than {SHORT} such lines": sum(written(text) < SHORT for text in files.values()),
        "folders of plugin/": len(folders),
        "arrows between them": len(arrows(files)),
        "files that branch on a flag `scatter`": sum(
            bool(re.search(r"(->|\.)scatter\b|bool scatter", text)) for text in files.values()),
        "headers that a .c file includes, with theirs: median": int(statistics.median(headers)),
        "headers that a .c file includes, with theirs: most": max(headers),
        "functions": len(lengths),
        "lines of a function: median": int(statistics.median(lengths)),
        "lines of a function: most": max(lengths),
    }


def main(roots):
    if not roots or any(not os.path.isdir(os.path.join(root, "base")) for root in roots):
        sys.exit(__doc__)
    columns = [figures(root) for root in roots]
    for name in columns[0]:
        print(f"{name:56}" + "".join(f"{column[name]:>10}" for column in columns))


if __name__ == "__main__":
    main(sys.argv[1:])
