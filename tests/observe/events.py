#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the events that the library's sources log, one a line. events.py SOURCE_ROOT"""
import glob
import os
import re
import sys

found = set()
for layer in "base cache kernels plugin interpose".split():
    for name in glob.glob(os.path.join(sys.argv[1], layer, "**", "*.c"), recursive=True):
        with open(name, encoding="utf-8") as f:
            for call in re.findall(r"\bslr_log(?:_asked)?\((.*?)\);", f.read(), re.S):
                # The event comes before the format, which has fields; two when they are chosen between.
                for text in re.findall(r'"([^"]*)"', call):
                    if not re.fullmatch(r"[a-z_]+", text):
                        break
                    found.add(text)
print("\n".join(sorted(found)))
