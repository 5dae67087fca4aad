"""Writes a byte under a lock, and syncs it only after the mount was stopped and has continued: lock-writer.py FILE PID-OF-MOUNT"""
import errno
import fcntl
import os
import signal
import sys


def said(call, word):
    try:
        call()
        print(word, flush=True)
    except OSError as error:
        print(errno.errorcode[error.errno], flush=True)


path, mount = sys.argv[1], int(sys.argv[2])
fd = os.open(path, os.O_RDWR)
fcntl.lockf(fd, fcntl.LOCK_EX)
os.pwrite(fd, b'7', 40)
# Before the mount has sent the byte.
os.kill(mount, signal.SIGSTOP)
print('stopped', flush=True)
said(lambda: os.fsync(fd), 'synced')
said(lambda: fcntl.lockf(fd, fcntl.LOCK_UN), 'unlocked')
said(lambda: os.close(fd), 'closed')
