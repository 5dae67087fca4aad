"""Takes a lock, says so, and keeps it until it reads a line: lock-holder.py KIND FILE

Then it writes the line's first byte under the lock, says what became of that, and gives the lock back.
"""
import errno
import fcntl
import os
import sys

kind, path = sys.argv[1], sys.argv[2]
fd = os.open(path, os.O_RDWR)
try:
    if kind == 'flock':
        fcntl.flock(fd, fcntl.LOCK_EX)
    else:
        fcntl.lockf(fd, fcntl.LOCK_EX)
except KeyboardInterrupt:
    print('interrupted', flush=True)
    sys.exit(0)
print('held', flush=True)
byte = sys.stdin.readline()[:1]
try:
    os.pwrite(fd, byte.encode(), 40)
    os.fsync(fd)
    print('wrote', flush=True)
except OSError as error:
    print(errno.errorcode[error.errno], flush=True)
try:
    os.close(fd)
    print('released', flush=True)
except OSError as error:
    print(errno.errorcode[error.errno], flush=True)
