#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`slipring doctor --bundle`: what is in it, what is not, who is asked, and what is left when it can not be written.

  bundle.py LAUNCHER SLIPRING_DOCTOR CASE       CASE: written, asked, unwritten, usage

From CMake: SLIPRING_LIB, SOFTGPU_DIR.
"""
import json
import os
import pty
import resource
import signal
import subprocess
import sys
import tarfile
import tempfile

launcher, tool, case = sys.argv[1:]
work = os.path.realpath(tempfile.mkdtemp())
FILE = os.path.join(work, "bundle.tar.gz")
SECRETS = {"SLIPRING_API_TOKEN": "hunter2 and more of it, with \"quotes\"", "NCCL_COMM_ID": "10.11.12.13:4567", "NCCL_NEW": "correct-horse",
           "SLIPRING_MIN_BYTES": "battery-staple", "WANDB_API_KEY": "0123456789abcdef", "SOMETHING_ELSE": "quite-private"}
HARMLESS = {"SOME_BYPASS": "true"}


def doctor(*arguments, status=0, environment=None, **options):
    everything = {**{k: v for k, v in os.environ.items() if not k.startswith(("SLIPRING_", "NCCL_"))}, "HOME": os.path.join(work, "home"),
                  "SLIPRING_LAUNCHER": launcher, "SLIPRING_LIB": os.environ["SLIPRING_LIB"], "LD_LIBRARY_PATH": os.environ["SOFTGPU_DIR"], "SOFTGPU_DEVICES": "2",
                  **(environment or {})}
    done = subprocess.run([tool, *arguments], env=everything, capture_output=True, text=True, stdin=subprocess.DEVNULL, **options)
    assert done.returncode == status, (arguments, done.returncode, done.stdout, done.stderr)
    return done


def contents():
    with tarfile.open(FILE, "r:gz") as archive:
        members = archive.getmembers()
        assert all(m.isfile() and m.name.startswith("slipring-bundle/") and ".." not in m.name for m in members), members
        return {m.name.removeprefix("slipring-bundle/"): archive.extractfile(m).read().decode() for m in members}


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def logs():
    """A folder with a log in each form; the second is longer than what is taken of it."""
    folder = os.path.join(work, "home", "logs")
    lines = ['{"level":"info","event":"process","version":"0","settings":"","command":"train.py --password \\"quite-private\\" x"}',
             '{"level":"warn","event":"setting","name":"SLIPRING_X","value":"quite-private","expected":"y"}',
             '{"level":"info","event":"job","msg":"the last one"}']
    write(os.path.join(folder, "a.jsonl"), "\n".join(lines) + "\n")
    text = ["slipring[vm:1] info early x=1", *("slipring[vm:1] info filler n=%06d" % i for i in range(20000)),
            'slipring[vm:1] info process version=0 settings="" command="train.py quite-private"',
            "slipring[vm:1] info process version=0 settings= command=quite-private",
            "slipring[vm:1] warn setting name=SLIPRING_X value=quite-private expected=y", f"slipring[vm:1] info late x={folder}"]
    write(os.path.join(folder, "b.log"), "\n".join(text))
    write(os.path.join(folder, "c.txt"), "no log")
    return folder


def written():
    folder = logs()
    done = doctor("--bundle", FILE, "--yes", "--logs", folder, environment={**SECRETS, **HARMLESS})
    found = contents()
    names = [name for name in found if not name.startswith("logs/")]
    assert set(names) >= {"doctor.txt", "doctor.json", "versions.txt", "environment.txt", "settings.txt"}, names
    for name, text in found.items():
        assert f"{len(text.encode()):>9} bytes  {name} " in done.stderr, (name, done.stderr)
    with open(FILE, "rb") as file:
        raw = file.read()
    for name, value in SECRETS.items():
        assert value.encode() not in raw and value[:8].encode() not in raw, f"the value of {name} is in it"
    assert work.encode() + b"/home" not in raw, "the home folder"
    assert sorted(found["environment.txt"].split("\n")[:-1]) == sorted(
        ["SLIPRING_API_TOKEN=(left out)", "NCCL_COMM_ID=(left out)", "NCCL_NEW=(left out)", "SLIPRING_MIN_BYTES=(left out)",
         f"SLIPRING_LIB={os.environ['SLIPRING_LIB']}", f"SLIPRING_LAUNCHER={launcher}"]), found["environment.txt"]
    last = done.stderr.splitlines()[-2]
    assert sorted(last.split(": ")[1].split()) == ["NCCL_COMM_ID", "NCCL_NEW", "SLIPRING_API_TOKEN", "SLIPRING_MIN_BYTES"], last
    assert "slipring doctor" in found["doctor.txt"] and '"device_kind": "softgpu"' in found["doctor.json"], found["doctor.txt"]
    assert json.loads(found["doctor.json"])["links"][0]["access"] is True, "what is harmless is left out"
    assert "SLIPRING_SLOT_BYTES" in found["settings.txt"] and "glibc" in found["versions.txt"]
    first, second = [found[name] for name in sorted(found) if name.startswith("logs/")]
    assert first.count("(left out)") == 2 and first.endswith('"the last one"}\n') and '"expected":"y"}' in first, first
    assert second.count("(left out)") == 3 and second.endswith("late x=~/logs") and "early" not in second, second[-500:]
    assert second.startswith("slipring[vm:1] info filler") and 200000 < len(second) < 262144, len(second)
    by_setting()


def by_setting():
    write(os.path.join(work, "own", "vm-12.jsonl"), "own\n")
    write(os.path.join(work, "own", "other.jsonl"), "other\n")
    doctor("--bundle", FILE, "--yes", environment={"SLIPRING_LOG_FILE": os.path.join(work, "own", "%h-%p.jsonl"), "SLIPRING_MIN_BYTES": "1M"})
    found = contents()
    assert [text for name, text in found.items() if name.startswith("logs/")] == ["own\n"], found.keys()
    assert "SLIPRING_MIN_BYTES=1M\n" in found["environment.txt"], found["environment.txt"]


def answered(word):
    """On a terminal."""
    main, other = pty.openpty()
    os.write(main, word.encode() + b"\n")
    environment = {**os.environ, "LD_LIBRARY_PATH": os.environ["SOFTGPU_DIR"], "SOFTGPU_DEVICES": "2"}
    done = subprocess.run([tool, "--bundle", FILE], env=environment, stdin=other, capture_output=True, text=True)
    os.close(main)
    os.close(other)
    return done


def asked():
    write(FILE, "what was there before")
    done = doctor("--bundle", FILE, status=4)
    assert "doctor.txt" in done.stderr and "--yes" in done.stderr, done.stderr
    done = answered("n")
    assert done.returncode == 4 and "Write it?" in done.stderr and "nothing was written" in done.stderr, done
    with open(FILE, encoding="utf-8") as file:
        assert file.read() == "what was there before"
    assert os.listdir(work) == ["bundle.tar.gz"], os.listdir(work)
    done = answered("y")
    assert done.returncode == 0 and "doctor.txt" in contents(), done


def small_files():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


def unwritten():
    """Nothing is left where there is no room; a path that can not be is told before anything is tried."""
    done = doctor("--bundle", FILE, "--yes", status=4, preexec_fn=small_files)
    assert f"{FILE} could not be written: File too large" in done.stderr and "wrote" not in done.stderr, done.stderr
    assert os.listdir(work) == [], os.listdir(work)
    for path, why in ((os.path.join(work, "none", "x"), "No such file or directory"), (work, "Is a directory")):
        done = doctor("--bundle", path, "--yes", status=4)
        assert done.stderr == f"slipring: {path} can not be written: {why}\n", done.stderr
    done = doctor("--bundle", "/dev/full", "--yes", status=4)
    assert done.stderr.endswith("slipring: /dev/full could not be written: No space left on device\n"), done.stderr
    done = doctor("--bundle", FILE, "--yes", "--logs", os.path.join(work, "none"), status=4)
    assert "--logs: " + os.path.join(work, "none") in done.stderr and os.listdir(work) == [], done.stderr


def usage():
    wrong = subprocess.run([tool, "--no-such-option"], capture_output=True).returncode
    assert wrong and "--bundle" in doctor("--yes", status=wrong).stderr and "--bundle" in doctor("--logs", work, status=wrong).stderr


try:
    globals()[case]()
finally:
    subprocess.run(["rm", "-rf", work], check=True)
