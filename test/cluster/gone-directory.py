"""What programs see of a directory that they have open when it loses its name: gone-directory.py MOUNT OTHER_MOUNT HOW"""
import os
import stat
import sys

here, there, how = sys.argv[1:4]
path = os.path.join(here, how)
os.mkdir(path, 0o755)
fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
assert os.fstat(fd).st_nlink == 2
inode = os.fstat(fd).st_ino
if how == 'rmdir-here':
    os.rmdir(path)
elif how == 'rmdir-there':
    os.rmdir(os.path.join(there, how))
else:
    mount = here if how == 'replaced-here' else there
    os.mkdir(os.path.join(mount, how + '.new'))
    open(os.path.join(mount, how + '.new', 'f'), 'x').close()
    os.rename(os.path.join(mount, how + '.new'), os.path.join(mount, how))
if how.endswith('-there'):
    # What the mount has heard of it is believed for up to a second.
    import time
    end = time.monotonic() + 30
    while os.fstat(fd).st_nlink > 0 and time.monotonic() < end:
        time.sleep(0.05)
found = os.fstat(fd)
assert (found.st_nlink, found.st_ino) == (0, inode), found
assert os.listdir(fd) == []
os.fchmod(fd, 0o700)
assert stat.S_IMODE(os.fstat(fd).st_mode) == 0o700
os.utime(fd, ns=(5_000_000_001, 7_000_000_002))
assert os.fstat(fd).st_mtime_ns == 7_000_000_002
os.fsync(fd)
os.chdir(fd)
for call in (lambda: os.mkdir('d'), lambda: open('f', 'x'), lambda: os.stat('f'), lambda: os.symlink('a', 'l')):
    try:
        call()
    except FileNotFoundError:
        continue
    raise AssertionError('it can be used')
os.close(fd)
if how.startswith('replaced'):
    assert os.listdir(path) == ['f']
else:
    assert not os.path.exists(path)
