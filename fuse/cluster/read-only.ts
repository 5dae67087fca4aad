import type { BackendFile, FileSystemBackend } from '../backend.ts';
import { ErrnoError } from '../errno.ts';

/** Wraps a backend: refuses changes, even after the kernel's own `ro` flag is cleared (`mount -i -o remount,rw`). */
export function readOnlyBackend(backend: FileSystemBackend): FileSystemBackend {
  return {
    ...backend,
    createFile: refuse,
    createUnnamed: refuse,
    nameFile: refuse,
    makeDirectory: refuse,
    makeNode: refuse,
    symlink: refuse,
    link: refuse,
    unlink: refuse,
    removeDirectory: refuse,
    rename: refuse,
    renameWhiteout: refuse,
    setAttributes: refuse,
    setFlags: refuse,
    recordAccesses: refuse,
    setXattr: refuse,
    removeXattr: refuse,
    // A read-only token may not flush, and this mount has nothing to flush.
    persistNames: () => Promise.resolve(),
    openFile: (inode, replicas, contents) => readOnlyFile(backend.openFile(inode, replicas, contents)),
  };
}

function readOnlyFile(file: BackendFile): BackendFile {
  return {
    ...file,
    write: refuse,
    writeParts: refuse,
    append: refuse,
    truncate: refuse,
    punch: refuse,
    copyFrom: refuse,
    seal: refuse,
  };
}

function refuse(): Promise<never> {
  return Promise.reject(new ErrnoError('EROFS', 'The mount is read-only'));
}
