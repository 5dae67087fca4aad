"""An NFS client in this process, by libnfs: nfs-client.py URL

Reads calls as JSON, one a line: ["read", "/file"]. Answers each with {"value": ...}, or {"errno": "EACCES"} and a
reason. With NFS 4, libnfs 4.0 can lock one file once, and writes only little at a time.
"""
import ctypes
import errno
import fcntl
import json
import os
import sys

nfs = ctypes.CDLL('libnfs.so.13')


class Url(ctypes.Structure):
    _fields_ = [('server', ctypes.c_char_p), ('path', ctypes.c_char_p), ('file', ctypes.c_char_p)]


class Lock(ctypes.Structure):
    _fields_ = [('type', ctypes.c_int), ('whence', ctypes.c_int), ('pid', ctypes.c_uint32),
                ('start', ctypes.c_uint64), ('length', ctypes.c_uint64)]


class Entry(ctypes.Structure):
    _fields_ = [('next', ctypes.c_void_p), ('name', ctypes.c_char_p), ('inode', ctypes.c_uint64)]


pointer, number = ctypes.c_void_p, ctypes.c_uint64
nfs.nfs_init_context.restype = pointer
nfs.nfs_parse_url_dir.restype = ctypes.POINTER(Url)
nfs.nfs_parse_url_dir.argtypes = [pointer, ctypes.c_char_p]
nfs.nfs_get_error.argtypes = [pointer]
nfs.nfs_get_error.restype = ctypes.c_char_p
nfs.nfs_readdir.restype = ctypes.POINTER(Entry)
for name, arguments in {
    'nfs_mount': [ctypes.c_char_p, ctypes.c_char_p],
    'nfs_open': [ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(pointer)],
    'nfs_pread': [pointer, number, number, pointer],
    'nfs_pwrite': [pointer, number, number, ctypes.c_char_p],
    'nfs_fsync': [pointer],
    'nfs_close': [pointer],
    'nfs_fcntl': [pointer, ctypes.c_int, pointer],
    'nfs_mkdir': [ctypes.c_char_p],
    'nfs_rename': [ctypes.c_char_p, ctypes.c_char_p],
    'nfs_unlink': [ctypes.c_char_p],
    'nfs_opendir': [ctypes.c_char_p, ctypes.POINTER(pointer)],
    'nfs_readdir': [pointer],
    'nfs_closedir': [pointer],
    'nfs_set_autoreconnect': [ctypes.c_int],
}.items():
    getattr(nfs, name).argtypes = [pointer, *arguments]

PIECE_BYTES = 65536
context = nfs.nfs_init_context()
handles = {}


def done(result):
    if result < 0:
        raise OSError(-result, 'libnfs')
    return result


def connect(url):
    nfs.nfs_set_autoreconnect(context, -1)
    at = nfs.nfs_parse_url_dir(context, url.encode())
    if not at:
        raise OSError(errno.EINVAL, url)
    done(nfs.nfs_mount(context, at.contents.server, at.contents.path))


def opened(path, flags):
    handle = pointer()
    done(nfs.nfs_open(context, path.encode(), flags, ctypes.byref(handle)))
    return handle


def open_file(path):
    handles[path] = opened(path, os.O_RDWR)


def close_file(path):
    done(nfs.nfs_close(context, handles.pop(path)))


def pread(path, offset, length):
    buffer = ctypes.create_string_buffer(length)
    count = done(nfs.nfs_pread(context, handles[path], offset, length, buffer))
    return buffer.raw[:count].decode()


def pwrite(path, offset, text):
    done(nfs.nfs_pwrite(context, handles[path], offset, len(text), text.encode()))
    done(nfs.nfs_fsync(context, handles[path]))


def lock(path, kind, start, length):
    kinds = {'exclusive': fcntl.F_WRLCK, 'shared': fcntl.F_RDLCK, 'none': fcntl.F_UNLCK}
    wanted = Lock(kinds[kind], os.SEEK_SET, os.getpid(), start, length)
    done(nfs.nfs_fcntl(context, handles[path], 0, ctypes.byref(wanted)))


def write(path, text, times=1):
    handle, piece = opened(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), text.encode() * times
    for at in range(0, len(piece), PIECE_BYTES):
        part = piece[at:at + PIECE_BYTES]
        if done(nfs.nfs_pwrite(context, handle, at, len(part), part)) != len(part):
            raise OSError(errno.EIO, path)
    done(nfs.nfs_fsync(context, handle))
    done(nfs.nfs_close(context, handle))


def read(path):
    handle, parts = opened(path, os.O_RDONLY), []
    buffer = ctypes.create_string_buffer(PIECE_BYTES)
    while True:
        count = done(nfs.nfs_pread(context, handle, sum(map(len, parts)), PIECE_BYTES, buffer))
        if count == 0:
            break
        parts.append(buffer.raw[:count])
    done(nfs.nfs_close(context, handle))
    return b''.join(parts).decode()


def names(path):
    directory, found = pointer(), []
    done(nfs.nfs_opendir(context, path.encode(), ctypes.byref(directory)))
    while entry := nfs.nfs_readdir(context, directory):
        found.append(entry.contents.name.decode())
    nfs.nfs_closedir(context, directory)
    return sorted(name for name in found if name not in ('.', '..'))


CALLS = {
    'connect': connect, 'write': write, 'read': read, 'names': names, 'open': open_file, 'close': close_file,
    'pread': pread, 'pwrite': pwrite, 'lock': lock,
    'mkdir': lambda path: done(nfs.nfs_mkdir(context, path.encode())),
    'rename': lambda old, new: done(nfs.nfs_rename(context, old.encode(), new.encode())),
    'unlink': lambda path: done(nfs.nfs_unlink(context, path.encode())),
}
for line in sys.stdin:
    call, *arguments = json.loads(line)
    try:
        answer = {'value': CALLS[call](*arguments)}
    except OSError as error:
        reason = nfs.nfs_get_error(context) or b''
        answer = {'errno': errno.errorcode.get(error.errno, str(error.errno)), 'reason': reason.decode()}
    print(json.dumps(answer), flush=True)
