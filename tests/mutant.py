#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mutants: sources of the library, each changed in one way that a test has to notice. tests/FOLDER/mutants.txt holds
those of a folder:

    # What is wrong with it.
    mutant NAME FILE PLACE
    -        old line
    +        new line
             line that stays
    @
    -        old line of another change in the same place
    @ PLACE
    +        ... in another place of the same file
    @ FILE PLACE
    +        ... in another file

PLACE is a function, or what else is defined at the left margin by that name (a struct, a table, a macro); `(file)` is
the whole file. The old lines, and those that stay, have to stand there together exactly once, whatever their
indentation; new lines follow it.

  mutant.py TABLE NAME FILE         prints FILE as the mutant has it
  mutant.py --files TABLE...        of each mutant of the tables: its name, its table, and the files that it changes
  mutant.py --write TABLE FOLDER    writes all files of all mutants of the table, each as FOLDER/MUTANT/FILE's name
  mutant.py --check [USES]          fails when an entry of any table does not apply, when a name is there twice, or when
                                    the names that the file USES holds, one a line, are not those of the tables
"""
import os
import re
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WHOLE = '(file)'


class Error(Exception):
    """What is wrong with a table, or with an entry and the source that it is for."""


class Hunk:
    def __init__(self, file, place):
        self.file, self.place, self.lines = file, place, []

    def old(self):
        return [text for sign, text in self.lines if sign != '+']

    def __str__(self):
        return '\n'.join(sign + text for sign, text in self.lines)


class Mutant:
    def __init__(self, table, line, name):
        self.table, self.line, self.name, self.hunks = table, line, name, []

    def files(self):
        return list(dict.fromkeys(hunk.file for hunk in self.hunks))

    def __str__(self):
        return f'{short(self.table)}:{self.line}: mutant {self.name}'

    def wrong(self, hunk, what):
        return Error(f'{self}: {hunk.file}, {hunk.place}: {what}:\n{hunk}')


def short(table):
    """Its path in this tree, as messages name it."""
    return os.path.relpath(table, ROOT)


def read(table):
    """The mutants of a table, in its order."""
    mutants = []
    hunk = None  # that goes on
    with open(table, encoding='utf-8') as f:
        for number, line in enumerate(f.read().splitlines(), 1):
            words = line.split()
            if line.startswith('mutant ') and len(words) == 4:
                mutants.append(Mutant(table, number, words[1]))
                hunk = Hunk(*words[2:])
            elif hunk and words[:1] == ['@'] and line[0] == '@' and len(words) <= 3:
                hunk = Hunk(*([hunk.file, hunk.place][:3 - len(words)] + words[1:]))
            elif hunk and line[:1] in ('-', '+', ' '):
                hunk.lines.append((line[0], line[1:]))
                if len(hunk.lines) == 1:
                    mutants[-1].hunks.append(hunk)
            elif line and line[0] != '#':
                raise Error(f'{short(table)}:{number}: not a line of such a table: {line}')
    for m in mutants:
        for hunk in m.hunks:
            if not hunk.old() or all(sign == ' ' for sign, _ in hunk.lines):
                raise m.wrong(hunk, 'this changes nothing, or says not where')
        if not m.hunks:
            raise Error(f'{m} changes nothing')
    return mutants


def name_of(head):
    """What a definition defines, by the lines in front of its body."""
    if not head.endswith('{'):  # KERNEL(f)(...) defines f
        m = re.search(r'(\w+)\s*\((?:(\w+)\)\()?', head)
        return m and (m[2] or m[1])
    m = re.search(r'(\w+)(?:\[[^]]*\])*(?: =)? \{$', head)
    return m and m[1]


def places(lines):
    """(name, first line, line behind the last one) of all that a source defines at the left margin."""
    found = []
    for i, line in enumerate(lines):
        end = i + 1
        if m := re.match(r'#define (\w+)', line):
            while lines[end - 1].endswith('\\'):
                end += 1
            found.append((m[1], i, end))
        elif re.match(r'\w.*\{$|\{$', line):
            begin = i
            while line == '{' and begin > 0 and re.match(r'(?!/\*|#|\}| \*).*[^;/]$', lines[begin - 1]):
                begin -= 1
            while end < len(lines) and lines[end - 1][:1] != '}':
                end += 1
            found.append((name_of(' '.join(lines[begin:i + (line != '{')])), begin, end))
    return found


def indentation(line):
    return len(line) - len(line.lstrip(' '))


def changed(mutant, hunk, source, at):
    """The lines that stand in the source in place of the hunk's old ones, of which the first is source[at]."""
    shift = indentation(source[at]) - indentation(hunk.old()[0])
    new = []
    for sign, text in hunk.lines:
        if sign == '+':
            new.append(text and ' ' * max(0, indentation(text) + shift) + text.lstrip(' '))
        else:
            if sign == ' ':
                new.append(source[at])
            at += 1
    return new


def find(mutant, hunk, source, where):
    """Where the hunk's old lines begin in the source."""
    old = [line.lstrip(' ') for line in hunk.old()]
    spans = [(begin, end) for name, begin, end in where if name == hunk.place]
    if hunk.place == WHOLE:
        spans = [(0, len(source))]
    if not spans:
        raise mutant.wrong(hunk, 'the file defines no such thing')
    at = [i for begin, end in spans for i in range(begin, end - len(old) + 1)
          if [line.lstrip(' ') for line in source[i:i + len(old)]] == old]
    if len(at) != 1:
        raise mutant.wrong(hunk, f'its old lines are there {len(at)} times, not once')
    return at[0]


def apply(mutant, file, text):
    """The text of the file, as the mutant has it."""
    source = text.split('\n')
    where = places(source)
    edits = []
    for hunk in mutant.hunks:
        if hunk.file == file:
            at = find(mutant, hunk, source, where)
            edits.append((at, at + len(hunk.old()), changed(mutant, hunk, source, at), hunk))
    edits.sort(key=lambda edit: edit[:2])
    out, upto = [], 0
    for begin, end, new, hunk in edits:
        if begin < upto:
            raise mutant.wrong(hunk, 'two changes of one line')
        if new == source[begin:end]:
            raise mutant.wrong(hunk, 'this changes nothing')
        out += source[upto:begin] + new
        upto = end
    if not edits:
        raise Error(f'{mutant} does not change {file}')
    return '\n'.join(out + source[upto:])


def source_text(mutant, file):
    try:
        with open(os.path.join(ROOT, file), encoding='utf-8', newline='') as f:
            return f.read()
    except OSError as e:
        raise Error(f'{mutant}: {e}') from e


def write(path, text):
    """A file that holds this already stays as old as it is: what is made of it is not made again."""
    try:
        with open(path, encoding='utf-8', newline='') as f:
            if f.read() == text:
                return
    except OSError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + '.new', 'w', encoding='utf-8', newline='') as f:
        f.write(text)
    os.replace(path + '.new', path)


def check(tables, uses):
    """All that is wrong with the tables, and how many mutants they have."""
    wrong, known = [], {}
    for table in tables:
        try:
            mutants = read(table)
        except Error as e:
            wrong.append(str(e))
            continue
        for m in mutants:
            if m.name in known:
                wrong.append(f'{m} is in {short(known[m.name])}, too')
            known[m.name] = table
            try:
                for file in m.files():
                    apply(m, file, source_text(m, file))
            except Error as e:
                wrong.append(str(e))
    if uses is not None:
        wrong += [f'{short(table)}: no test is about mutant {name}' for name, table in known.items() if name not in uses]
        wrong += [f'no table has mutant {name}' for name in uses if name not in known]
    return wrong, len(known)


SOURCE = '''#define MOST 4
struct pair {
    int a;
};

static int f(struct pair *p,
             int n)
{
    if (n)
        p->a++;
    return MOST;
}

/* g() */
int g(void)
{
    step();
    if (x)
        step();
    return f(0, 1);
}
'''
SAMPLES = [  # an entry for SOURCE; what becomes of it ('old' -> 'new'), or what is said
    ('m (s) f\n-p->a++;\n+p->a--;\n', ('p->a++', 'p->a--')),
    ('m (s) g\n-    return f(0, 1);\n+    return 0;\n', ('return f(0, 1)', 'return 0')),
    ('m (s) g\n if (x)\n-    step();\n+    stop();\n', ('    if (x)\n        step', '    if (x)\n        stop')),
    ('m (s) pair\n-    int a;\n+    char a;\n', ('int a', 'char a')),
    ('m (s) MOST\n-#define MOST 4\n+#define MOST 5\n', ('MOST 4', 'MOST 5')),
    ('m (s) (file)\n-    return MOST;\n', ('    return MOST;\n', '')),
    ('m (s) f\n int n)\n+           /* */\n', ('int n)\n', 'int n)\n                        /* */\n')),
    ('m (s) g\n-    step();\n+    stop();\n', 'there 2 times'),
    ('m (s) f\n-    return f(0, 1);\n', 'there 0 times'),
    ('m (s) h\n-    step();\n', 'defines no such thing'),
    ('m (s) f\n-    return MOST;\n+    return MOST;\n', 'changes nothing'),
    ('m (s) f\n+    return 1;\n', 'changes nothing'),
    ('m (s) f\n-    if (n)\n@\n-    if (n)\n-    p->a++;\n', 'two changes of one line'),
    ('m (s) f\nreturn MOST;\n', 'not a line of such a table'),
]


def self_test():
    """The check is of use: what it is to find, it finds."""
    with tempfile.NamedTemporaryFile('w+', suffix='.txt') as table:
        for entry, want in SAMPLES:
            table.seek(0)
            table.truncate()
            table.write('# why\nmutant ' + entry)
            table.flush()
            try:
                said = apply(read(table.name)[0], '(s)', SOURCE)
            except Error as e:
                said = str(e)
            good = SOURCE.replace(*want, 1) == said if isinstance(want, tuple) else want in said
            if not good:
                raise Error(f'mutant.py: its own sample fails:\n{entry}{said}')


def main(args):
    if args[:1] == ['--check'] and len(args) <= 2:
        self_test()
        tests = os.path.join(ROOT, 'tests')
        tables = [os.path.join(tests, folder, 'mutants.txt') for folder in sorted(os.listdir(tests))]
        uses = None
        if len(args) == 2:
            with open(args[1], encoding='utf-8') as f:
                uses = f.read().split()
        wrong, count = check([table for table in tables if os.path.exists(table)], uses)
        if wrong:
            raise Error('\n'.join(wrong))
        print(f'{count} mutants')
    elif args[:1] == ['--files']:
        for table in args[1:]:
            for m in read(table):
                print(m.name, table, *m.files())
    elif args[:1] == ['--write'] and len(args) == 3:
        for m in read(args[1]):
            for file in m.files():
                write(os.path.join(args[2], m.name, os.path.basename(file)), apply(m, file, source_text(m, file)))
    elif len(args) == 3 and args[0][0] != '-':
        table, name, file = args
        mutants = [m for m in read(table) if m.name == name]
        if len(mutants) != 1:
            raise Error(f'{short(table)} has {len(mutants)} mutants {name}')
        sys.stdout.write(apply(mutants[0], file, source_text(mutants[0], file)))
    else:
        sys.exit(__doc__)


if __name__ == '__main__':
    try:
        main(sys.argv[1:])
    except Error as error:
        sys.exit(f'mutant.py: {error}')
