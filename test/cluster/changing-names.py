"""Changes names and files in a directory until its input ends, and keeps account of what is there.

Argument: the directory. Prints a line after every ten rounds; at the end the account as JSON: the files with their
contents, the other names, and the longest call. Ends with 1 and a message at the first call that fails, or if a file is not
as the account says.
"""

import fcntl
import json
import os
import select
import sys
import time
import traceback

directory = sys.argv[1]
files = {}
links = {}
longest = ["", 0.0]


def timed(name, call, *arguments, **options):
    begun = time.monotonic()
    result = call(*arguments, **options)
    took = time.monotonic() - begun
    if took > longest[1]:
        longest[:] = [name, took]
    return result


def path(name):
    return os.path.join(directory, name)


def store(name, text, flags, synced):
    file = timed("open", os.open, path(name), os.O_CREAT | os.O_WRONLY | flags, 0o644)
    timed("write", os.write, file, text.encode())
    if synced:
        timed("fsync", os.fsync, file)
    timed("close", os.close, file)


def check(name):
    with timed("open", open, path(name)) as file:
        found = timed("read", file.read)
    if found != files[name]:
        raise AssertionError(f"{name} has {found!r}, not {files[name]!r}")


def round_of(number, held):
    name = f"f{number}"
    files[name] = f"contents of {number}"
    store(name, files[name], os.O_EXCL if number % 2 else 0, number % 5 == 0)
    timed("append", os.write, held, f"{number}\n".encode())
    if number % 7 == 0:
        timed("fsync", os.fsync, held)
    earlier = f"f{number - 3}"
    if earlier in files:
        renamed = f"r{number}"
        timed("rename", os.rename, path(earlier), path(renamed))
        files[renamed] = files.pop(earlier)
        check(renamed)
    if number % 3 == 0 and f"r{number - 6}" in files:
        timed("unlink", os.unlink, path(f"r{number - 6}"))
        del files[f"r{number - 6}"]
    if number % 6 == 0:
        files[name] = "truncated"
        store(name, files[name], os.O_TRUNC, False)
    if number % 4 == 0:
        timed("link", os.link, path(name), path(f"l{number}"))
        files[f"l{number}"] = files[name]
        timed("chmod", os.chmod, path(name), 0o600)
    if number % 5 == 0:
        timed("mkdir", os.mkdir, path(f"d{number}"))
        timed("symlink", os.symlink, name, path(f"s{number}"))
        links[f"s{number}"] = name
        timed("rmdir", os.rmdir, path(f"d{number}"))
    if number % 10 == 0:
        directory_file = os.open(directory, os.O_RDONLY)
        timed("fsync of the directory", os.fsync, directory_file)
        os.close(directory_file)
        listed = set(timed("list", os.listdir, directory))
        if listed != {*files, *links, "held"}:
            raise AssertionError(f"the list differs: {listed ^ {*files, *links, 'held'}}")


held = os.open(path("held"), os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o644)
fcntl.lockf(held, fcntl.LOCK_EX)
rounds = 0
try:
    while not select.select([sys.stdin], [], [], 0)[0]:
        rounds += 1
        round_of(rounds, held)
        if rounds % 10 == 0:
            print(rounds, flush=True)
    os.fsync(held)
    files["held"] = os.pread(held, 1 << 24, 0).decode()
    expected = "".join(f"{number}\n" for number in range(1, rounds + 1))
    if files["held"] != expected:
        raise AssertionError("the appended file differs")
    os.close(held)
except Exception:
    print(f"round {rounds}:", traceback.format_exc(), flush=True)
    sys.exit(1)
print(json.dumps({"rounds": rounds, "files": files, "links": links, "longest": longest}), flush=True)
