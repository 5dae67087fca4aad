"""Creates files in memory of a mount, and stops the mount before it has sent them.

Arguments: the directory, and the mount's process. Prints a line once the mount is stopped. After a line of input, when
the mount runs again, uses the open files and closes them; prints as JSON which names there are. Ends with 1 at the
first call that fails, or if a file is not as it was left.
"""

import json
import os
import signal
import sys
import time

directory, mount = sys.argv[1], int(sys.argv[2])
# Creates shortly after one another have the directory delegated to the mount, and numbers reserved for it.
CREATES = 12
PAUSE_S = 0.05
TEXT = b"written"
MORE = b" and more"


def path(name):
    return os.path.join(directory, name)


def create(name, flags=0):
    file = os.open(path(name), os.O_CREAT | os.O_RDWR | flags, 0o644)
    os.write(file, TEXT)
    return file


def use(name, file):
    os.fchmod(file, 0o600)
    os.write(file, MORE + b" than that")
    assert os.stat(path(name)).st_size == len(TEXT + MORE + b" than that"), os.stat(path(name))
    os.ftruncate(file, len(TEXT + MORE))
    assert os.fstat(file).st_size == len(TEXT + MORE), os.fstat(file)
    os.pwrite(file, b"W", 0)
    assert os.pread(file, 100, 0) == b"W" + (TEXT + MORE)[1:], os.pread(file, 100, 0)
    assert os.fstat(file).st_mode & 0o777 == 0o600, os.fstat(file)
    os.setxattr(file, "user.note", b"kept")
    os.utime(file, ns=(5, 7))
    assert os.fstat(file).st_mtime_ns == 7, os.fstat(file)


def check(name, text):
    with open(path(name), "rb") as file:
        found = file.read()
    assert found == text, (name, found)


for number in range(CREATES):
    os.close(create(f"early{number}"))
    time.sleep(PAUSE_S)
held = create("held")
exclusive = create("exclusive", os.O_EXCL)
late = {name: create(name) for name in ["closed", "synced", "linked", "used"]}
os.kill(mount, signal.SIGSTOP)
print("stopped", flush=True)
sys.stdin.readline()

# From here on the mount knows the new volume.
check("early0", TEXT)
os.fsync(late["synced"])
os.link(path("linked"), path("link"))
os.rename(path("used"), path("renamed"))
late["renamed"] = late.pop("used")
for name, file in [("renamed", late["renamed"]), ("exclusive", exclusive), ("held", held)]:
    use(name, file)
for file in [*late.values(), exclusive, held]:
    os.close(file)
for name in ["closed", "synced", "linked", "link"]:
    check(name, TEXT)
for name in ["renamed", "exclusive", "held"]:
    check(name, b"W" + (TEXT + MORE)[1:])
    assert os.getxattr(path(name), "user.note") == b"kept"
    assert os.stat(path(name)).st_mode & 0o777 == 0o600
print(json.dumps(list(late)), flush=True)
