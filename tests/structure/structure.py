#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How the library's files depend on each other, and which of them one call passes through.

  structure.py check SOURCE_ROOT OBJECT...  fails when a folder uses or includes one that is not in its list, when
                                            another folder includes what is for a folder alone, or when files use each
                                            other in a circle; prints the figures
  structure.py names SOURCE_ROOT PAGE...    fails when a page names a `file:function`, or a file, that does not exist
  structure.py graph OBJECT...              the uses between files, from the symbols of their object files
  structure.py way LIBRARY TRACE            the way of one call, from what way.c has written down
  structure.py self-test                    whether `check` finds what it is to find
"""
import collections
import os
import re
import subprocess
import sys
import tempfile


def source_of(obj):
    """plugin/CMakeFiles/slr_plugin.dir/gather/gather.c.o -> plugin/gather/gather.c"""
    m = re.search(r'([^/]+)/CMakeFiles/[^/]+\.dir/(.*)\.o$', obj)
    return os.path.normpath(f'{m[1]}/{m[2]}') if m else os.path.basename(obj)


def uses(objects):
    """{file: {other file: [symbols that it uses of it]}}"""
    defined, wanted = {}, {source_of(obj): [] for obj in objects}
    out = subprocess.run(['nm', '-A', *objects], capture_output=True, text=True, check=True).stdout
    for line in out.splitlines():
        obj, _, symbol = line.partition(':')
        kind, symbol = symbol.split()[-2:]
        if not symbol.startswith('sl'):  # slr_, slipring_: else the C library's or a vendor's, also where hooked
            continue
        if kind == 'U':
            wanted[source_of(obj)].append(symbol)
        elif kind in 'TDBRCVW':
            defined[symbol] = source_of(obj)
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
    """{offset: (source file from the root, function)}"""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    out = subprocess.run(['addr2line', '-f', '-e', library] + offsets, capture_output=True, text=True, check=True)
    lines = out.stdout.splitlines()
    return {o: (os.path.relpath(os.path.realpath(lines[2 * i + 1].split(':')[0]), root), lines[2 * i])
            for i, o in enumerate(offsets)}


def print_way(library, trace):
    steps = [line.split() for line in open(trace)]
    name = functions(library, sorted({o for _, o in steps}))
    way = [(int(depth), *name[o]) for depth, o in steps]
    first, stack, entered, again = way[0][0], [], collections.Counter(), collections.Counter()
    for depth, file, function in way:
        del stack[depth - first:]
        print('  ' * len(stack) + f'{file}:{function}')
        if not stack or stack[-1] != file:
            entered[file] += 1
            again[file] += file in stack  # something that it called, in another file, calls it
        stack.append(file)
    sources = sorted(file for file in entered if file.endswith('.c'))
    print(f'{len(way)} calls, {len(sources)} source files, {sum(again.values())} calls back into a file that waits')
    for part in sorted({folder(file) for file in sources}):
        print(f'    {part}: ' + ', '.join(f'{os.path.basename(f)} {entered[f]}' for f in sources if folder(f) == part))
    for file, n in again.items():
        if n:
            print(f'    back into {file}: {n}')


# The folders of the library in their order, and which of those before it each uses (of plugin's the name alone). A new
# arrow is a line here; one that is not used any more is an error.
USES = {
    'base': '',
    'cache': 'base',
    'kernels': 'base',
    'plugin/abi': '',
    'plugin': '',
    'plugin/util': 'base plugin',
    'plugin/callers': 'base abi',
    'plugin/comm': 'base cache kernels util',
    'plugin/bootstrap': 'base cache kernels comm',
    'plugin/memory': 'base cache kernels util comm bootstrap',
    'plugin/connect': 'base cache kernels comm bootstrap memory',
    'plugin/places': 'base cache callers comm',
    'plugin/timeline': 'base cache kernels abi util comm bootstrap',
    'plugin/tuner': 'base abi util comm',
    'plugin/profiler': 'base abi util comm timeline tuner',
    'plugin/trials': 'base kernels util comm tuner',
    'plugin/produce': 'base cache kernels util comm connect timeline trials',
    'plugin/graphs': 'base cache kernels util comm bootstrap memory connect timeline',
    'plugin/pending': 'base cache kernels util comm graphs',
    'plugin/passed': 'base cache kernels comm connect tuner produce pending',
    'plugin/transfer': 'base cache kernels comm memory passed',
    'plugin/gather': 'base cache kernels comm memory connect trials produce pending passed transfer',
    'plugin/hosts': 'base cache kernels util comm timeline trials produce gather',
    'plugin/fuse': 'base kernels util comm trials produce pending passed hosts',
    'plugin/record': 'base cache kernels comm memory connect timeline trials graphs pending passed transfer gather',
    'plugin/scatter': 'base kernels abi util comm connect timeline trials produce graphs pending gather record hosts',
    'plugin/lifecycle': 'base cache kernels util callers comm bootstrap memory connect places timeline tuner profiler trials '
                        'produce graphs pending passed transfer record hosts',
    'plugin/calls': 'base cache abi util callers comm memory connect timeline tuner trials graphs pending passed gather '
                    'record scatter hosts lifecycle',
    'interpose': 'base cache kernels comm memory produce graphs pending passed fuse record '
                 'lifecycle calls',
}
ORDER = list(USES)


def listed(user):
    """The folders in the list of `user`."""
    for name in USES[user].split():
        yield name if name in USES else f'plugin/{name}'


OUTSIDE = ['LD_PRELOAD', 'tools', 'bench', 'softgpu', 'tests', 'examples', 'packaging']  # no part of the library


def may_use(user, used):
    return user == used or (user in USES and used in listed(user))


def includes(root):
    """(place, file, included file) for each #include of a file of the repository by the library."""
    for top in sorted({name.split('/')[0] for name in ORDER}):
        for path, _, names in os.walk(os.path.join(root, top)):
            for name in sorted(names):
                if not re.search(r'\.([chS]|def|cu|inc)$', name):
                    continue
                file = os.path.relpath(os.path.join(path, name), root)
                for number, line in enumerate(open(os.path.join(root, file), errors='replace'), 1):
                    m = re.match(r'\s*#\s*include\s*["<]((?:\.\./)*)([^">]+)[">]', line)
                    if m and m[2].split('/')[0] in OUTSIDE + [name.split('/')[0] for name in ORDER]:
                        yield f'{file}:{number}', file, m[2]


def include_errors(root):
    for place, file, included in includes(root):
        if not may_use(folder(file), folder(included)):
            yield f'{place}: {folder(file)} must not include {folder(included)}'
        elif included.endswith('_impl.h') and folder(file) != folder(included):
            yield f'{place}: {included} is for {folder(included)} alone'


def list_errors(root, graph):
    """What the list itself says against the order, and what nothing needs."""
    used = {(folder(file), folder(included)) for _, file, included in includes(root)}
    used |= {(folder(name), folder(other)) for name, others in graph.items() for other in others}
    for user in USES:
        for other in listed(user):
            if other not in ORDER[:ORDER.index(user)]:
                yield f'{user} is to use {other}, which is not before it'
            elif (user, other) not in used:
                yield f'{user} does not use {other}: take it from the list'


def use_errors(graph):
    for name in sorted(graph):
        for other, symbols in sorted(graph[name].items()):
            if not may_use(folder(name), folder(other)):
                yield f'{name} uses {other}: {", ".join(sorted(symbols))}'
    for circle in circles(graph):
        yield f'{len(circle)} files use each other in a circle: {" ".join(circle)}'


def check(root, objects):
    if not os.path.isdir(os.path.join(root, 'base')) or not objects:
        sys.exit(f'structure.py: {root} is not the source tree, or there are no objects')
    graph = uses(objects)
    errors = list(include_errors(root)) + list(use_errors(graph)) + list(list_errors(root, graph))
    for error in errors:
        print(error)
    print(f'{len(graph)} files in {len({folder(name) for name in graph})} folders, '
          f'{sum(len(o) for o in graph.values())} uses between files, largest circle: '
          f'{max([len(c) for c in circles(graph)], default=1)}')
    return not errors


def defines(root, file, function):
    if not os.path.isfile(os.path.join(root, file)):
        return False
    text = open(os.path.join(root, file)).read()
    # A definition in C, at the line's beginning; or one that macros make.
    return bool(re.search(rf'^[A-Za-z][^\n;]*\b{function}\(', text, re.M) or re.search(rf'^{function}:', text, re.M))


def name_errors(root, page):
    text = open(os.path.join(root, page)).read()
    named = re.findall(r'`([a-z_A-Z0-9/]+\.[chS]):(\w+)`', text)
    if not named:
        yield f'{page} names no function'
    for file, function in named:
        if not defines(root, file, function):
            yield f'{page}: there is no {file}:{function}'


def write(root, name, text):
    os.makedirs(os.path.dirname(os.path.join(root, name)), exist_ok=True)
    with open(os.path.join(root, name), 'w') as file:
        file.write(text)


def compile_object(root, name, text):
    obj = os.path.join(root, os.path.dirname(name).split('/')[0], 'CMakeFiles/x.dir',
                       *name.split('/')[1:]) + '.o'
    os.makedirs(os.path.dirname(obj), exist_ok=True)
    subprocess.run(['cc', '-c', '-x', 'c', '-', '-o', obj], input=text, text=True, check=True)
    return obj


def self_test():
    """A tree with one error of each sort, and what is allowed beside it."""
    with tempfile.TemporaryDirectory() as root:
        write(root, 'base/a.c', '#include "cache/a.h"\n')
        write(root, 'cache/a.c', '  #  include "kernels/a.h"\n')
        write(root, 'kernels/a.h', '#include <cache/a.h>\n')
        write(root, 'plugin/comm/a.c', '#include "../../interpose/a.h"\n#include "plugin/util/a.h"\n')
        write(root, 'plugin/memory/a.c', '#include "plugin/gather/a.h"\n#include "plugin/memory/b_impl.h"\n')
        write(root, 'plugin/calls/a.c', '#include "plugin/memory/b_impl.h"\n')
        write(root, 'interpose/a.c', '#include "tests/unit/a.h"\n#include "base/a.h"\n#include <stdio.h>\n')
        found = list(include_errors(root))
        assert len(found) == 7, found
        objects = [compile_object(root, 'plugin/comm/a.c', 'int slr_b(void); int slr_a(void) { return slr_b(); }'),
                   compile_object(root, 'plugin/comm/b.c', 'int slr_a(void), slr_c(void); int slr_b(void) { return slr_a() + slr_c(); }'),
                   compile_object(root, 'plugin/calls/c.c', 'int slr_a(void); int slr_c(void) { return slr_a(); }'),
                   compile_object(root, 'base/d.c', 'int slr_d(void) { return 1; }')]
        found = list(use_errors(uses(objects)))
        assert len(found) == 2, found  # b uses c, which comes after it; a, b and c are a circle
        write(root, 'page.md', '`base/f.c:slr_f`, `base/f.c:slr_g`, `base/g.c:slr_f`')
        write(root, 'base/f.c', 'int slr_f(void)\n{\n    return slr_g();\n}\n')
        assert len(list(name_errors(root, 'page.md'))) == 2


def main(argv):
    if len(argv) > 3 and argv[1] == 'check':
        sys.exit(0 if check(argv[2], argv[3:]) else 1)
    elif len(argv) > 3 and argv[1] == 'names':
        errors = [e for page in argv[3:] for e in name_errors(argv[2], page)]
        sys.exit('\n'.join(errors) or 0)
    elif len(argv) > 2 and argv[1] == 'graph':
        print_graph(argv[2:])
    elif len(argv) == 4 and argv[1] == 'way':
        print_way(argv[2], argv[3])
    elif len(argv) == 2 and argv[1] == 'self-test':
        self_test()
    else:
        sys.exit(__doc__)


if __name__ == '__main__':
    main(sys.argv)
