"""Adds to a number in a file, each time under a lock of its own: lock-counter.py KIND FILE COUNT [FENCE]

Before each addition it makes a directory next to the file, and removes it afterwards: no two programs can have it at the
same time, whatever the file says. Ends with the number of additions, or with what went wrong.
"""
import fcntl
import os
import sys

kind, path, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
fence = path + '.held'
done = 0
fd = os.open(path, os.O_RDWR)
while done < count:
    if kind == 'flock':
        fcntl.flock(fd, fcntl.LOCK_EX)
    else:
        fcntl.lockf(fd, fcntl.LOCK_EX)
    try:
        os.mkdir(fence)
    except FileExistsError:
        print('TWO HOLDERS', flush=True)
        sys.exit(3)
    value = int(os.pread(fd, 32, 0) or b'0')
    os.pwrite(fd, b'%032d' % (value + 1), 0)
    os.rmdir(fence)
    done += 1
    if kind == 'flock':
        fcntl.flock(fd, fcntl.LOCK_UN)
    else:
        fcntl.lockf(fd, fcntl.LOCK_UN)
print(done, flush=True)
