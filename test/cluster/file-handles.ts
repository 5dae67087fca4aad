import { runOk } from './cluster-mount.ts';

const HANDLES = `
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
first, second, private = sys.argv[1:]
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("data", ctypes.c_ubyte * 128)]
def handle(path):
    made, mount = Handle(128), ctypes.c_int()
    if libc.name_to_handle_at(-100, path.encode(), ctypes.byref(made), ctypes.byref(mount), 0) != 0:
        raise OSError(ctypes.get_errno(), path)
    return made
def opened(directory, made):
    fd = os.open(directory, os.O_RDONLY)
    try:
        result = libc.open_by_handle_at(fd, ctypes.byref(made), os.O_RDONLY)
        if result < 0: raise OSError(ctypes.get_errno(), directory)
        return result
    finally: os.close(fd)
def refused(directory, made):
    try: return os.close(opened(directory, made))
    except OSError as error: return errno.errorcode[error.errno]
file, gone = handle(first + "/d/e/f"), handle(first + "/g")
os.unlink(first + "/g")
removed = refused(second, gone)
fd = opened(second, file)
inside = os.listdir(opened(second, handle(first + "/d/e"))) == ["f"]
same = os.fstat(fd).st_ino == os.stat(first + "/d/e/f").st_ino
print(os.read(fd, 10).decode().strip(), same, inside, removed, refused(private, file))
`;

/** What `openedByHandles` returns if handles are valid on the second mount, and for no other volume. */
export const HANDLES_VALID = 'text True True ESTALE ESTALE';

/**
 * Makes a directory with a file in `first`, and opens them by file handles on the mount of `second`; so does it with a
 * removed file, and with the file on the mount of `other`.
 */
export async function openedByHandles(first: string, second: string, other: string): Promise<string> {
  await runOk('sh', ['-c', 'mkdir -p d/e && echo text > d/e/f && echo gone > g'], { cwd: first });
  return (await runOk('python3', ['-c', HANDLES, first, second, other])).text.trim();
}
