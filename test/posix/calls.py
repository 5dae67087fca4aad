"""Makes system calls as one user: a line of JSON in ([call, argument, ...]), a line of JSON out.

Node cannot change its user for one call, and has neither renameat2 nor mkfifo, nor times in nanoseconds.
Arguments: uid, gid, supplementary groups with commas between. The answer is {"value": text} or {"errno": name}.
"""
import ctypes
import errno
import fcntl
import json
import mmap
import os
import signal
import socket
import stat
import struct
import sys
import time

libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100
# The clock from which file systems take their times (clock_gettime(2)).
CLOCK_REALTIME_COARSE = 5
files = {}
running = []
listings = {}
libc.opendir.restype = ctypes.c_void_p
libc.telldir.restype = ctypes.c_long
libc.telldir.argtypes = [ctypes.c_void_p]
libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]
libc.rewinddir.argtypes = [ctypes.c_void_p]
libc.closedir.argtypes = [ctypes.c_void_p]
libc.readdir64.argtypes = [ctypes.c_void_p]


class Entry(ctypes.Structure):
    _fields_ = [("ino", ctypes.c_uint64), ("off", ctypes.c_int64), ("reclen", ctypes.c_uint16),
                ("type", ctypes.c_uint8), ("name", ctypes.c_char * 256)]


libc.readdir64.restype = ctypes.POINTER(Entry)

NAMES = {**errno.errorcode, errno.EOPNOTSUPP: "EOPNOTSUPP"}
LOCKS = {"exclusive": fcntl.LOCK_EX, "shared": fcntl.LOCK_SH, "unlock": fcntl.LOCK_UN}
TYPES = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink", stat.S_IFIFO: "fifo",
         stat.S_IFSOCK: "socket", stat.S_IFCHR: "character", stat.S_IFBLK: "block"}


def libc_call(result):
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def flags_of(text):
    flags = 0
    for name in text.split("|"):
        flags |= getattr(os, "O_" + name.upper())
    return flags


def fields_of(st, wanted):
    known = {"type": TYPES[stat.S_IFMT(st.st_mode)], "mode": format(stat.S_IMODE(st.st_mode), "04o"),
             "links": st.st_nlink, "uid": st.st_uid, "gid": st.st_gid, "size": st.st_size, "inode": st.st_ino,
             "accessed": st.st_atime_ns, "modified": st.st_mtime_ns, "changed": st.st_ctime_ns,
             "device": st.st_rdev, "blocks": st.st_blocks,
             # Since it was written.
             "read": "yes" if st.st_atime_ns > st.st_mtime_ns else "no"}
    return " ".join(str(known[name]) for name in wanted.split(","))


def time_of(text):
    """-> struct timespec: `now`, `omit`, or seconds.nanoseconds"""
    if text == "now":
        return (0, (1 << 30) - 1)
    if text == "omit":
        return (0, (1 << 30) - 2)
    seconds, _, nanoseconds = text.partition(".")
    return (int(seconds), int((nanoseconds or "0").ljust(9, "0")))


def utimens(path, accessed, modified, flags=0):
    times = (ctypes.c_long * 4)(*time_of(accessed), *time_of(modified))
    libc_call(libc.utimensat(AT_FDCWD, os.fsencode(path), times, flags))


def open_as(name, path, flags, mode="0644"):
    files[name] = os.open(path, flags_of(flags), int(mode, 8))


def close(name):
    os.close(files.pop(name))


def listing(path):
    return " ".join(sorted(os.listdir(path)))


def read_entries(name, count):
    names = []
    while len(names) < int(count):
        ctypes.set_errno(0)
        entry = libc.readdir64(listings[name])
        if not entry:
            if ctypes.get_errno() != 0:
                libc_call(-1)
            break
        names.append(os.fsdecode(entry.contents.name))
    return " ".join(sorted(names))


def open_directory(name, path):
    listings[name] = libc.opendir(os.fsencode(path))
    if not listings[name]:
        libc_call(-1)


def mapped_read(path, offset, length):
    fd = os.open(path, os.O_RDONLY)
    try:
        with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as pages:
            return pages[int(offset):int(offset) + int(length)].decode("latin1")
    finally:
        os.close(fd)


def mapped_write(path, offset, text):
    fd = os.open(path, os.O_RDWR)
    try:
        with mmap.mmap(fd, 0) as pages:
            pages[int(offset):int(offset) + len(text)] = text.encode("latin1")
            pages.flush()
    finally:
        os.close(fd)


def set_xattrs(path, count):
    for number in range(int(count)):
        os.setxattr(path, f"user.{number}", b"x" * 64)


def xattr_names(path):
    return " ".join(sorted(name for name in os.listxattr(path, follow_symlinks=False) if name.startswith(("user.", "trusted."))))


ACL_TAGS = {"u": (2, 1), "g": (8, 4), "m": (16, 16), "o": (32, 32)}
ACL_IDS = {"alice": 1001, "bob": 1002, "carol": 1003}
ACL_NOBODY = 0xffffffff


def acl_attribute(which):
    return "system.posix_acl_" + which


def acl_bytes(text):
    """As Linux takes a list: `u::rw-,u:bob:r--,g::r--,m::r--,o::---`."""
    entries = []
    for entry in text.split(","):
        kind, name, letters = entry.split(":")
        named, unnamed = ACL_TAGS[kind]
        permissions = sum(bit for bit, letter in zip((4, 2, 1), letters) if letter != "-")
        identity = ACL_IDS[name] if name else ACL_NOBODY
        entries.append(struct.pack("<HHI", named if name else unnamed, permissions, identity))
    return struct.pack("<I", 2) + b"".join(entries)


def acl_text(value):
    kinds = {tag: kind for kind, tags in ACL_TAGS.items() for tag in tags}
    names = {identity: name for name, identity in ACL_IDS.items()}
    entries = []
    for tag, permissions, identity in struct.iter_unpack("<HHI", value[4:]):
        letters = "".join(letter if permissions & bit else "-" for bit, letter in ((4, "r"), (2, "w"), (1, "x")))
        entries.append(f"{kinds[tag]}:{names.get(identity, '')}:{letters}")
    return ",".join(entries)


# struct vfs_cap_data of version 2, effective, with CAP_NET_RAW.
CAPABILITY = struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0)


def getcap(path):
    value = os.getxattr(path, "security.capability")
    return "net-raw" if value == CAPABILITY else value.hex()


def bind(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path)


def rename_with(old, new, flags):
    libc_call(libc.renameat2(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), int(flags)))


def make(path, mode="0644"):
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, int(mode, 8)))


def put(path, text):
    fd = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o644)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def get(path):
    with open(path, "rb", buffering=0) as opened:
        return opened.readall().decode("latin1")


def make_of(path, kind):
    """Something of the type, whose name leads nowhere where it is a symbolic link."""
    if kind == "file":
        make(path)
    elif kind == "directory":
        os.mkdir(path)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        bind(path)
    elif kind == "symlink":
        os.symlink("nowhere", path)
    else:
        os.mknod(path, 0o644 | (stat.S_IFCHR if kind == "character" else stat.S_IFBLK), os.makedev(1, 3))


def program(path):
    """A program that runs for a minute."""
    with open("/bin/sleep", "rb") as known:
        code = known.read()
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o755)
    try:
        os.write(fd, code)
    finally:
        os.close(fd)


def start(path):
    running.append(os.posix_spawn(os.path.abspath(path), [path, "60"], {}))


def unmount(path):
    libc_call(libc.umount2(os.fsencode(path), 0))


def fill(path, prefix, first, count, step=1):
    """Many empty files at once."""
    for number in range(int(first), int(first) + int(count) * int(step), int(step)):
        os.close(os.open(f"{path}/{prefix}{number:07}", os.O_CREAT | os.O_WRONLY, 0o644))


def clear(path, prefix, first, count, step=1):
    for number in range(int(first), int(first) + int(count) * int(step), int(step)):
        os.unlink(f"{path}/{prefix}{number:07}")


FS_IOC_GETFLAGS = 0x80086601
FS_IOC_SETFLAGS = 0x40086602
INODE_FLAGS = {"immutable": 0x10, "append-only": 0x20}


def fchattr(fd, *flags):
    fcntl.ioctl(fd, FS_IOC_SETFLAGS, struct.pack("I", sum(INODE_FLAGS[flag] for flag in flags)))


def chattr(path, *flags):
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        fchattr(fd, *flags)
    finally:
        os.close(fd)


def lsattr(path):
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        word, = struct.unpack("I", fcntl.ioctl(fd, FS_IOC_GETFLAGS, struct.pack("I", 0)))
    finally:
        os.close(fd)
    return " ".join(flag for flag, bit in INODE_FLAGS.items() if word & bit)


LOCK_TYPES = {"shared": fcntl.F_RDLCK, "exclusive": fcntl.F_WRLCK, "unlock": fcntl.F_UNLCK}
# struct flock of 64 bits: type, whence, start, length, process.
FLOCK = "hhqqi4x"


def lock_holder(name, kind, start="0", length="0"):
    wish = struct.pack(FLOCK, LOCK_TYPES[kind], 0, int(start), int(length), 0)
    found, _, begin, count, _ = struct.unpack(FLOCK, fcntl.fcntl(files[name], fcntl.F_GETLK, wish))
    for kind, number in LOCK_TYPES.items():
        if number == found and kind != "unlock":
            return f"{kind} {begin} {'end' if count == 0 else begin + count - 1}"
    return "none"


def flock(name, kind, waits):
    fcntl.flock(files[name], LOCKS[kind] | (fcntl.LOCK_NB if waits == "no" else 0))


def dup(name, other):
    files[other] = os.dup(files[name])


CALLS = {
    "access": lambda path, mode: libc_call(libc.faccessat(AT_FDCWD, os.fsencode(path), int(mode), 0)),
    "append-many": lambda path, text, count: append_many(path, text, int(count)),
    "bind": bind,
    "chattr": chattr,
    "chdir": os.chdir,
    "chmod": lambda path, mode: os.chmod(path, int(mode, 8)),
    "chown": lambda path, uid, gid: os.chown(path, int(uid), int(gid)),
    "clear": clear,
    "close": close,
    "close-directory": lambda name: libc_call(libc.closedir(listings.pop(name))),
    "coarse-clock": lambda: str(time.clock_gettime_ns(CLOCK_REALTIME_COARSE)),
    "copy": lambda name, offset, to, to_offset, length: str(os.copy_file_range(
        files[name], files[to], int(length), int(offset), int(to_offset))),
    "create": make,
    "dup": dup,
    "fallocate": lambda name, mode, offset, length: libc_call(
        libc.fallocate64(files[name], int(mode), ctypes.c_int64(int(offset)), ctypes.c_int64(int(length)))),
    "fchattr": lambda name, *flags: fchattr(files[name], *flags),
    "fchmod": lambda name, mode: os.fchmod(files[name], int(mode, 8)),
    "fchown": lambda name, uid, gid: os.fchown(files[name], int(uid), int(gid)),
    "fill": fill,
    "flock": flock,
    "fstat": lambda name, wanted: fields_of(os.fstat(files[name]), wanted),
    "fsync": lambda name: os.fsync(files[name]),
    "ftruncate": lambda name, size: os.ftruncate(files[name], int(size)),
    "futimens": lambda name, accessed, modified: libc_call(
        libc.futimens(files[name], (ctypes.c_long * 4)(*time_of(accessed), *time_of(modified)))),
    "get": get,
    "getcap": getcap,
    "getfacl": lambda path, which="access": acl_text(os.getxattr(path, acl_attribute(which))),
    "getxattr": lambda path, name: os.getxattr(path, name).decode(),
    "lchown": lambda path, uid, gid: os.lchown(path, int(uid), int(gid)),
    "link": lambda old, new, how="nofollow": libc_call(
        libc.linkat(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), 0x400 if how == "follow" else 0)),
    "list": listing,
    "listed-as": lambda path: "as stat" if all(
        entry.inode() == os.lstat(entry.path).st_ino for entry in os.scandir(path)) else "otherwise",
    "listxattr": xattr_names,
    "lock": lambda name, kind, start, length, waits: fcntl.lockf(
        files[name], LOCKS[kind] | (fcntl.LOCK_NB if waits == "no" and kind != "unlock" else 0), int(length), int(start)),
    "lock-holder": lock_holder,
    "lsattr": lsattr,
    "lseek": lambda name, offset, whence: str(os.lseek(files[name], int(offset), int(whence))),
    "lstat": lambda path, wanted: fields_of(os.lstat(path), wanted),
    "lutimens": lambda path, accessed, modified: utimens(path, accessed, modified, 0x100),
    "make": make_of,
    "mapped-read": mapped_read,
    "mapped-write": mapped_write,
    "mkdir": lambda path, mode="0755": os.mkdir(path, int(mode, 8)),
    "mkfifo": lambda path, mode="0644": os.mkfifo(path, int(mode, 8)),
    "mknod": lambda path, kind, major, minor: os.mknod(
        path, 0o644 | (stat.S_IFCHR if kind == "character" else stat.S_IFBLK), os.makedev(int(major), int(minor))),
    "mount-on": lambda path: libc_call(libc.mount(b"none", os.fsencode(path), b"tmpfs", 0, None)),
    "name": lambda name, path: libc_call(
        libc.linkat(AT_FDCWD, f"/proc/self/fd/{files[name]}".encode(), AT_FDCWD, os.fsencode(path), 0x400)),
    "open": open_as,
    "open-directory": open_directory,
    "pread": lambda name, length, offset: os.pread(files[name], int(length), int(offset)).decode("latin1"),
    "program": program,
    "put": put,
    "pwrite": lambda name, text, offset: str(os.pwrite(files[name], text.encode("latin1"), int(offset))),
    "read": lambda name, length: os.read(files[name], int(length)).decode("latin1"),
    "read-entries": read_entries,
    "readlink": os.readlink,
    "removexattr": os.removexattr,
    "removefacl": lambda path, which="access": os.removexattr(path, acl_attribute(which)),
    "rename": os.rename,
    "rename-with": rename_with,
    "reopen": lambda name, other, flags: open_as(name, f"/proc/self/fd/{files[other]}", flags),
    "rewind": lambda name: libc.rewinddir(listings[name]),
    "rmdir": os.rmdir,
    "same-inode": lambda a, b: "yes" if os.lstat(a).st_ino == os.lstat(b).st_ino else "no",
    "seek-directory": lambda name, place: libc.seekdir(listings[name], int(place)),
    "set-flags": lambda name, flags: void(fcntl.fcntl(files[name], fcntl.F_SETFL, flags_of(flags))),
    "setcap": lambda path: os.setxattr(path, "security.capability", CAPABILITY),
    "setfacl": lambda path, text, which="access": os.setxattr(path, acl_attribute(which), acl_bytes(text)),
    "setxattr": lambda path, name, value, flags="0": os.setxattr(path, name, value.encode(), int(flags)),
    "setxattrs": set_xattrs,
    "start": start,
    "stat": lambda path, wanted: fields_of(os.stat(path), wanted),
    "statvfs": lambda path, wanted: str(getattr(os.statvfs(path), "f_" + wanted)),
    "symlink": os.symlink,
    "tell-directory": lambda name: str(libc.telldir(listings[name])),
    "truncate": lambda path, size: os.truncate(path, int(size)),
    "umask": lambda mode: void(os.umask(int(mode, 8))),
    "unlink": os.unlink,
    "unmount": unmount,
    "utimens": utimens,
    "write": lambda name, text: str(os.write(files[name], text.encode("latin1"))),
}


def void(_):
    return None


def append_many(path, text, count):
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        for number in range(count):
            os.write(fd, f"{text}{number:06}\n".encode())
    finally:
        os.close(fd)


def forget():
    """Between two rules: nothing open, no mask."""
    for name in list(files):
        close(name)
    while running:
        os.kill(running[-1], signal.SIGKILL)
        os.waitpid(running.pop(), 0)
    for name in list(listings):
        libc.closedir(listings.pop(name))
    os.umask(0)
    os.chdir("/")


CALLS["forget"] = forget


def answer(line):
    call, *arguments = json.loads(line)
    try:
        value = CALLS[call](*arguments)
        return {"value": "" if value is None else value}
    except OSError as error:
        return {"errno": NAMES.get(error.errno, str(error.errno))}
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        return {"errno": f"{type(error).__name__} {error}"}


def main():
    uid, gid, groups = int(sys.argv[1]), int(sys.argv[2]), [int(each) for each in sys.argv[3].split(",")]
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    # /proc/self is root's otherwise (prctl(2), PR_SET_DUMPABLE).
    libc_call(libc.prctl(4, 1, 0, 0, 0))
    os.umask(0)
    os.chdir("/")
    for line in sys.stdin:
        print(json.dumps(answer(line)), flush=True)


main()
