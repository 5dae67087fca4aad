"""Locks at offsets from 2^53 on, by two processes through two mounts: far-locks.py FILE FILE"""
import errno
import fcntl
import os
import sys

FAR = 1 << 53
LAST = (1 << 63) - 1
files = [os.open(path, os.O_RDWR) for path in sys.argv[1:3]]


def by_another(offset, length):
    """@returns whether another process gets the lock through the second mount"""
    child = os.fork()
    if child == 0:
        try:
            fcntl.lockf(files[1], fcntl.LOCK_EX | fcntl.LOCK_NB, length, offset)
            os._exit(0)
        except OSError as error:
            os._exit(1 if error.errno in (errno.EAGAIN, errno.EACCES) else 2)
    return {0: True, 1: False}[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]


def lock(offset, length, kind=fcntl.LOCK_EX):
    wait = 0 if kind == fcntl.LOCK_UN else fcntl.LOCK_NB
    fcntl.lockf(files[0], kind | wait, length, offset)


for offset in (FAR - 1, FAR, FAR + 1, LAST - 1):
    lock(offset, 1)
    assert not by_another(offset, 1), offset
    assert not by_another(0, 0), 'to the end'
    assert by_another(offset + 1, 1), offset
    assert by_another(offset - 1, 1), offset
    lock(offset, 1, fcntl.LOCK_UN)
    assert by_another(offset, 1), offset
lock(FAR + 5, 0)
assert not by_another(LAST - 1, 1)
assert by_another(FAR, 5)
