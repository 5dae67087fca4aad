import fs from 'node:fs';
import fsPromises from 'node:fs/promises';
import { rangeOf } from './buffers.ts';

/**
 * What the store asks of the operating system, all of it but `writeNow` done in the thread pool. It is an interface
 * so that a test can hand in a disk that fails. Failures carry the usual `code` (ENOSPC, EIO, …).
 */
export interface FileOps {
  /** @returns a file descriptor */
  open(path: string, flags: number): Promise<number>;
  close(fd: number): Promise<void>;
  /** @returns the number of bytes written, which may be less than there are: the caller goes on */
  write(fd: number, buffers: readonly Uint8Array[], position: number): Promise<number>;
  /** Writes all of it to a file, which is made where there is none, and closes it, before it returns: the event loop waits. */
  writeNow(path: string, buffers: readonly Uint8Array[], position: number): void;
  /** @returns the number of bytes read, 0 at the end of the file */
  read(fd: number, buffer: Uint8Array, position: number): Promise<number>;
  /** What was written to the file so far, through any descriptor, survives loss of power. */
  datasync(fd: number): Promise<void>;
  truncate(fd: number, sizeBytes: number): Promise<void>;
  unlink(path: string): Promise<void>;
  /** Names created in and removed from the directory so far survive loss of power. */
  flushDirectory(path: string): Promise<void>;
}

/** The real disk. Callbacks rather than `fs/promises`: half the overhead on the path of every small write. */
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
        if (count === 0) throw tookNothing();
        at += count;
        rest = rangeOf(rest, count, Infinity);
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

/** @returns `ops`, of which each sync is timed: `begin` is called before it, and what it returned at its end */
export function syncsTimed(ops: FileOps, begin: () => () => void): FileOps {
  return {
    ...ops,
    async datasync(fd) {
      const end = begin();
      await ops.datasync(fd);
      end();
    },
  };
}

/** Writes all of `buffers` from `position` on, however often the system stops short. */
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
    if (count === 0) throw tookNothing();
    at += count;
    rest = rangeOf(rest, count, Infinity);
  }
}

function tookNothing(): Error {
  return Object.assign(new Error('The disk took no bytes'), { code: 'EIO' });
}

/** @returns the number of bytes read into `buffer`, less than its length only at the end of the file */
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

/** Where the caller cannot wait. */
export function flushDirectory(directory: string): void {
  const fd = fs.openSync(directory, 'r');
  try {
    fs.fsyncSync(fd);
  } finally {
    fs.closeSync(fd);
  }
}
