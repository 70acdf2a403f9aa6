#!/usr/bin/env python3
"""Checks that links between the Markdown pages lead to files, and that docs/README.md links every page of docs/.

Usage: links.py SOURCE_ROOT
"""
import os
import re
import sys
import tempfile


def targets(page):
    """Relative targets of a page's links, without code and without the part behind #."""
    with open(page, encoding="utf-8") as file:
        text = re.sub(r"^```.*?^```|^ {4}.*?$|`[^`\n]*`", "", file.read(), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s#]+)[^)]*\)", text):
        if not re.match(r"[a-z]+:", target):
            yield target


def pages(root):
    for folder, folders, files in os.walk(root):
        folders[:] = [f for f in folders if not f.startswith((".", "build"))]
        yield from (os.path.join(folder, f) for f in files if f.endswith(".md"))


def broken(root):
    for page in pages(root):
        for target in targets(page):
            if not os.path.exists(os.path.join(os.path.dirname(page), target)):
                yield f"{os.path.relpath(page, root)}: no {target}"


def unlisted(root):
    docs = os.path.join(root, "docs")
    listed = set(targets(os.path.join(docs, "README.md"))) | {"README.md"}
    for page in sorted(set(f for f in os.listdir(docs) if f.endswith(".md")) - listed):
        yield f"docs/README.md: no link to {page}"


def self_test():
    with tempfile.TemporaryDirectory() as root:
        os.mkdir(os.path.join(root, "docs"))
        samples = {"README.md": "[a](docs/one.md#x) [b](https://x.y) `[c](c)`\n\n    [d](d)\n\n[e](docs/three.md)\n",
                   "docs/README.md": "[one](one.md)", "docs/one.md": "[up](../README.md)", "docs/two.md": ""}
        for name, text in samples.items():
            with open(os.path.join(root, name), "w", encoding="utf-8") as file:
                file.write(text)
        assert list(broken(root)) == ["README.md: no docs/three.md"], list(broken(root))
        assert list(unlisted(root)) == ["docs/README.md: no link to two.md"], list(unlisted(root))


if __name__ == "__main__":
    self_test()
    wrong = list(broken(sys.argv[1])) + list(unlisted(sys.argv[1]))
    print(*wrong, sep="\n", file=sys.stderr, end="\n" if wrong else "")
    sys.exit(bool(wrong))
