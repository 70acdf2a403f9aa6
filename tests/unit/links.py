#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that what the pages and the comments in the code point to is there.

Usage: links.py SOURCE_ROOT
       links.py --installed FOLDER    only the links of the pages there

Links between the Markdown pages lead to files. Files that pages and C sources name from the source root
(folder/file.h) exist; a * in a name stands for anything. docs/README.md links every page of docs/, docs/measurements.md
every page of docs/measurements/, and docs/locks.md names every file of the library that has a lock.
"""
import glob
import os
import re
import sys
import tempfile

PAGES = (".md",)
SOURCES = (".md", ".c", ".h", ".S", ".def")
LIBRARY = ("base", "cache", "kernels", "plugin", "interpose")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def targets(page):
    """Relative targets of a page's links, without code and without the part behind #."""
    text = re.sub(r"^```.*?^```|^ {4}.*?$|`[^`\n]*`", "", read(page), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s#]+)[^)]*\)", text):
        if not re.match(r"[a-z]+:", target):
            yield target


def visible(names):
    return sorted(n for n in names if not n.startswith((".", "build")))


def files(root, endings):
    for folder, folders, names in os.walk(root):
        folders[:] = visible(folders)
        yield from (os.path.join(folder, n) for n in sorted(names) if n.endswith(endings))


def leads_to(page, target):
    return os.path.normpath(os.path.join(os.path.dirname(page), target))


def broken_links(root):
    for page in files(root, PAGES):
        for target in targets(page):
            if not os.path.exists(leads_to(page, target)):
                yield f"{os.path.relpath(page, root)}: no {target}"


def missing_files(root):
    folders = "|".join(f for f in visible(os.listdir(root)) if os.path.isdir(os.path.join(root, f)))
    name = re.compile(r"(?<![\w./*-])((?:%s)/[\w./*-]*\.(?:c|h|S|def|sh|py|md|in|cmake|map))(?![\w*])" % folders)
    for source in files(root, SOURCES):
        for number, line in enumerate(read(source).splitlines(), 1):
            for path in name.findall(line):
                if not glob.glob(os.path.join(root, path)):
                    yield f"{os.path.relpath(source, root)}:{number}: no {path}"


def unlisted_pages(root):
    docs = os.path.join(root, "docs")
    listed = set(targets(os.path.join(docs, "README.md"))) | {"README.md"}
    for page in sorted(set(f for f in os.listdir(docs) if f.endswith(".md")) - listed):
        yield f"docs/README.md: no link to {page}"
    older = os.path.join(docs, "measurements")
    if os.path.isdir(older):
        listed = set(targets(older + ".md"))
        for page in sorted(set("measurements/" + f for f in os.listdir(older)) - listed):
            yield f"docs/measurements.md: no link to {page}"


def unlisted_locks(root):
    named = re.findall(r"[\w./]+\.[ch]", read(os.path.join(root, "docs", "locks.md")))
    for layer in LIBRARY:
        for source in files(os.path.join(root, layer), (".c", ".h")):
            path = os.path.relpath(source, root)
            if path not in named and re.search(r"\bpthread_(mutex|rwlock|spinlock)_t \w+( =[^;]*)?;", read(source)):
                yield f"docs/locks.md: not the lock of {path}"


def everything_wrong(root):
    return [*broken_links(root), *missing_files(root), *unlisted_pages(root), *unlisted_locks(root)]


def self_test():
    samples = {
        "README.md": "[a](docs/one.md#x) [b](https://x.y) `[c](c)`\n\n    [d](d)\n\n[e](docs/3)\n`base/*.h` `base/*.S`",
        "docs/README.md": "[one](one.md) [locks](locks.md) [figures](measurements.md) [four](../4)",
        "docs/locks.md": "one (base/b.h)",
        "docs/one.md": "[up](../README.md) [four](../4)",
        "docs/two.md": "",
        "docs/measurements.md": "[a](measurements/a.md)",
        "docs/measurements/a.md": "",
        "docs/measurements/b.md": "",
        "base/a.h": "/* base/a.h, see base/gone.h (docs/two.md); build/base/x.c */",
        "base/b.h": "pthread_mutex_t lock; /* listed */",
        "base/c.c": "static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;",
        "base/d.c": "static void f(pthread_mutex_t *m);",
    }
    with tempfile.TemporaryDirectory() as root:
        for name, text in samples.items():
            path = os.path.join(root, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        found = everything_wrong(root)
    assert found == ["README.md: no docs/3", "docs/README.md: no ../4", "docs/one.md: no ../4", "README.md:6: no base/*.S",
                     "base/a.h:1: no base/gone.h", "docs/README.md: no link to two.md",
                     "docs/measurements.md: no link to measurements/b.md", "docs/locks.md: not the lock of base/c.c"], found


if __name__ == "__main__":
    self_test()
    wrong = [*broken_links(sys.argv[2])] if sys.argv[1] == "--installed" else everything_wrong(sys.argv[1])
    print(*wrong, sep="\n", file=sys.stderr, end="\n" if wrong else "")
    sys.exit(bool(wrong))
