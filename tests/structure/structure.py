#!/usr/bin/env python3
"""How the library's files depend on each other, and which of them one call passes through.

  structure.py graph OBJECT...                    the calls and uses between files, from their object files' symbols
  structure.py check SOURCE_ROOT OBJECT...        fails on a circle of files, or of folders
  structure.py way LIBRARY TRACE                  the way of one call, from what way.c has written down
"""
import collections
import os
import re
import subprocess
import sys


def source_of(obj):
    """plugin/CMakeFiles/slr_plugin.dir/gather/fuse.c.o -> plugin/gather/fuse.c"""
    m = re.search(r'([^/]+)/CMakeFiles/[^/]+\.dir/(.*)\.o$', obj)
    return f'{m[1]}/{m[2]}' if m else os.path.basename(obj)


def uses(objects):
    """{file: {other file: [symbols that it uses of it]}}"""
    defined, wanted = {}, {}
    for obj in objects:
        name = source_of(obj)
        wanted[name] = []
        for line in subprocess.run(['nm', obj], capture_output=True, text=True, check=True).stdout.splitlines():
            part = line.split()
            if part[-2] == 'U':
                wanted[name].append(part[-1])
            elif part[-2] in 'TDBRCVW':
                defined[part[-1]] = name
    graph = {name: collections.defaultdict(list) for name in wanted}
    for name, symbols in wanted.items():
        for symbol in symbols:
            if defined.get(symbol, name) != name:
                graph[name][defined[symbol]].append(symbol)
    return graph


def circles(graph):
    """The strongly connected components of more than one node (Tarjan), largest first."""
    index, low, stack, on, found = {}, {}, [], set(), []

    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        on.add(v)
        for w in graph[v]:
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in on:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            one = []
            while not one or one[-1] != v:
                one.append(stack.pop())
                on.discard(one[-1])
            if len(one) > 1:
                found.append(sorted(one))

    sys.setrecursionlimit(10000)
    for v in graph:
        if v not in index:
            visit(v)
    return sorted(found, key=len, reverse=True)


def folder(name):
    return os.path.dirname(name)


def of_folders(graph):
    folders = {folder(name): collections.defaultdict(list) for name in graph}
    for name, others in graph.items():
        for other, symbols in others.items():
            if folder(other) != folder(name):
                folders[folder(name)][folder(other)] += [f'{name} -> {other}: {", ".join(symbols)}']
    return folders


def print_graph(objects):
    graph = uses(objects)
    for name in sorted(graph):
        print(name)
        for other in sorted(graph[name]):
            print(f'    {other}: {", ".join(sorted(graph[name][other]))}')
    for one in circles(graph):
        print(f'circle of {len(one)} files: {" ".join(one)}')
    print(f'{len(graph)} files, largest circle: {max([len(c) for c in circles(graph)], default=1)}')


def functions(library, offsets):
    out = subprocess.run(['addr2line', '-f', '-e', library] + offsets, capture_output=True, text=True, check=True)
    lines = out.stdout.splitlines()
    return {o: (os.path.normpath(lines[2 * i + 1].split(':')[0]).lstrip('/'), lines[2 * i])
            for i, o in enumerate(offsets)}


def print_way(library, trace):
    steps = [line.split() for line in open(trace)]
    name = functions(library, sorted({o for _, o in steps}))
    way = [(int(depth), *name[o]) for depth, o in steps]
    for depth, file, function in way:
        print('  ' * depth + f'{file}:{function}')
    stack, entries = [], collections.Counter()
    for depth, file, _ in way:
        del stack[depth:]
        if stack and stack[-1] != file:
            entries[file] += 1
        stack.append(file)
    print(f'{len(way)} calls in {len({f for _, f, _ in way})} files')
    for file, n in entries.most_common():
        print(f'    entered {n} times from another file: {file}')


def main(argv):
    if len(argv) > 2 and argv[1] == 'graph':
        print_graph(argv[2:])
    elif len(argv) == 4 and argv[1] == 'way':
        print_way(argv[2], argv[3])
    else:
        sys.exit(__doc__)


if __name__ == '__main__':
    main(sys.argv)
