import fs from 'node:fs';
import fsPromises from 'node:fs/promises';
import { sliceBuffers } from './buffers.ts';

/** All but `writeNow` run in the thread pool. Failures carry the usual `code` (ENOSPC, EIO, …). */
export interface FileOps {
  open(path: string, flags: number): Promise<number>;
  close(fd: number): Promise<void>;
  /** @returns the number of bytes written, which may be fewer: the caller writes the rest */
  write(fd: number, buffers: readonly Uint8Array[], position: number): Promise<number>;
  /** Writes all of it to a file, created if missing, and closes it; blocks the event loop. */
  writeNow(path: string, buffers: readonly Uint8Array[], position: number): void;
  read(fd: number, buffer: Uint8Array, position: number): Promise<number>;
  /** What was written to the file so far, through any descriptor, survives loss of power. */
  datasync(fd: number): Promise<void>;
  truncate(fd: number, sizeBytes: number): Promise<void>;
  unlink(path: string): Promise<void>;
  /** Entries created in and removed from the directory so far survive loss of power. */
  flushDirectory(path: string): Promise<void>;
}

/** Callbacks rather than `fs/promises`: half the overhead on the path of every small write. */
export const diskFileOps: FileOps = {
  open(path, flags) {
    return new Promise((resolve, reject) => {
      fs.open(path, flags, 0o600, (error, fd) => (error === null ? resolve(fd) : reject(error)));
    });
  },
  close(fd) {
    return new Promise((resolve, reject) => {
      fs.close(fd, (error) => (error ? reject(error) : resolve()));
    });
  },
  write(fd, buffers, position) {
    return new Promise((resolve, reject) => {
      const only = buffers.length === 1 ? buffers[0] : undefined;
      const done = (error: NodeJS.ErrnoException | null, count: number) =>
        error === null ? resolve(count) : reject(error);
      if (only === undefined) fs.writev(fd, buffers as Uint8Array[], position, done);
      else fs.write(fd, only, 0, only.length, position, done);
    });
  },
  writeNow(path, buffers, position) {
    const fd = fs.openSync(path, fs.constants.O_RDWR | fs.constants.O_CREAT, 0o600);
    try {
      let rest = buffers;
      let at = position;
      while (rest.length > 0) {
        const count = fs.writevSync(fd, rest as Uint8Array[], at);
        if (count === 0) throw nothingWritten();
        at += count;
        rest = sliceBuffers(rest, count, Infinity);
      }
    } finally {
      fs.closeSync(fd);
    }
  },
  read(fd, buffer, position) {
    return new Promise((resolve, reject) => {
      fs.read(fd, buffer, 0, buffer.length, position, (error, count) =>
        error === null ? resolve(count) : reject(error),
      );
    });
  },
  datasync(fd) {
    return new Promise((resolve, reject) => {
      fs.fdatasync(fd, (error) => (error ? reject(error) : resolve()));
    });
  },
  truncate(fd, sizeBytes) {
    return new Promise((resolve, reject) => {
      fs.ftruncate(fd, sizeBytes, (error) => (error ? reject(error) : resolve()));
    });
  },
  unlink(path) {
    return fsPromises.unlink(path);
  },
  async flushDirectory(path) {
    const directory = await fsPromises.open(path, 'r');
    try {
      await directory.sync();
    } finally {
      await directory.close();
    }
  },
};

/** Measures syncs. @param begin called before each sync; the function it returns is called once the sync succeeds */
export function withTimedSyncs(ops: FileOps, begin: () => () => void): FileOps {
  return {
    ...ops,
    async datasync(fd) {
      const end = begin();
      await ops.datasync(fd);
      end();
    },
  };
}

export async function writeFully(
  ops: FileOps,
  fd: number,
  buffers: readonly Uint8Array[],
  position: number,
): Promise<void> {
  let rest = buffers;
  let at = position;
  while (rest.length > 0) {
    const count = await ops.write(fd, rest, at);
    if (count === 0) throw nothingWritten();
    at += count;
    rest = sliceBuffers(rest, count, Infinity);
  }
}

function nothingWritten(): Error {
  return Object.assign(new Error('The disk wrote no bytes'), { code: 'EIO' });
}

/** @returns the number of bytes read, fewer than the buffer's size only at the end of the file */
export async function readFully(
  ops: FileOps,
  fd: number,
  buffer: Uint8Array,
  position: number,
): Promise<number> {
  let count = 0;
  while (count < buffer.length) {
    const more = await ops.read(fd, count === 0 ? buffer : buffer.subarray(count), position + count);
    if (more === 0) break;
    count += more;
  }
  return count;
}

export function flushDirectory(directory: string): void {
  const fd = fs.openSync(directory, 'r');
  try {
    fs.fsyncSync(fd);
  } finally {
    fs.closeSync(fd);
  }
}
