"""Takes a lock, says so, and keeps it until it is told to go on: lock-holder.py KIND FILE

Then it writes under the lock, says what became of that, and gives the lock back.
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
sys.stdin.readline()
try:
    os.pwrite(fd, b'7', 40)
    os.fsync(fd)
    print('wrote', flush=True)
except OSError as error:
    print(errno.errorcode[error.errno], flush=True)
try:
    os.close(fd)
    print('released', flush=True)
except OSError as error:
    print(errno.errorcode[error.errno], flush=True)
