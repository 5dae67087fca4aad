import fs from 'node:fs';
import path from 'node:path';
import type { Access, PrivateDisk } from './private-disk.ts';
import { inodeAt, realFiles } from './real-files.ts';

/** How a disk performs a call of `node:fs`. */
export interface Performed {
  readonly access: Access;
  /** The indexes of arguments that name files. */
  readonly paths: readonly number[];
  perform(disk: PrivateDisk, args: readonly unknown[], run: () => unknown): unknown;
}

const ALL = Number.MAX_SAFE_INTEGER;

const runs: Performed['perform'] = (_disk, _args, run) => run();

const ofPath: Performed = { access: 'read', paths: [0], perform: runs };
const ofDescriptor: Performed = { access: 'read', paths: [], perform: runs };

/** A call that changes files. @param paths the indexes of arguments that name them */
const writing = (paths: readonly number[], perform: Performed['perform']): Performed => ({
  ...{ access: 'write', paths, perform },
});

// Files in memory have nothing to sync.
const syncing: Performed = {
  ...{ access: 'sync', paths: [], perform: (disk, [fd]) => disk.files.synced(fd as number) },
};

const removing = writing([0], (disk, [file], run) => {
  const found = realFiles.statSync(file as string, { throwIfNoEntry: false });
  const value = disk.files.names([file as string], file as string, run);
  if (found?.isFile() === true) disk.shrink(found.size);
  return value;
});

/** @returns whether an `open` creates files, and whether it truncates existing ones */
function opening(flags: unknown): { makes: boolean; empties: boolean } {
  if (typeof flags === 'number')
    return { makes: (flags & fs.constants.O_CREAT) !== 0, empties: (flags & fs.constants.O_TRUNC) !== 0 };
  const text = typeof flags === 'string' ? flags : 'r';
  return { makes: /[wa]/.test(text), empties: text.includes('w') };
}

/** Runs a call that opens a file, and may create or truncate it. */
function open(disk: PrivateDisk, file: string, flags: unknown, run: () => unknown): unknown {
  const { makes, empties } = opening(flags);
  if (empties && inodeAt(file) !== null) {
    const fd = realFiles.openSync(file, 'r');
    cut(disk, fd, 0);
    realFiles.closeSync(fd);
  }
  return makes ? disk.files.names([file], null, run) : run();
}

/** A file is about to end at `sizeBytes`. */
function cut(disk: PrivateDisk, fd: number, sizeBytes: number): void {
  const { size } = realFiles.fstatSync(fd);
  disk.files.changes(fd, sizeBytes, ALL - sizeBytes);
  disk.shrink(size - sizeBytes);
}

function write(disk: PrivateDisk, fd: number, position: unknown, length: number, name: string): void {
  const { size } = realFiles.fstatSync(fd);
  const at = typeof position === 'number' ? position : size;
  disk.grow(at + length - size, name);
  disk.files.changes(fd, at, length);
}

const lengthOf = (data: unknown): number => {
  if (Array.isArray(data)) return data.reduce((sum: number, one) => sum + lengthOf(one), 0);
  return typeof data === 'string' ? Buffer.byteLength(data) : (data as Uint8Array).byteLength;
};

/** `writeFile` and `appendFile`, of a path or of a descriptor. */
const writingWhole = (flag: string): Performed =>
  writing([0], (disk, [file, data, options], run) => {
    const given = typeof options === 'object' && options !== null ? (options as Record<string, unknown>) : {};
    if (typeof file === 'number') {
      write(disk, file, null, lengthOf(data), 'write');
      return run();
    }
    disk.grow(lengthOf(data), 'write');
    const value = open(disk, file as string, given.flag ?? flag, run);
    if (given.flush !== true) return value;
    const fd = realFiles.openSync(file as string, 'r');
    disk.files.synced(fd);
    realFiles.closeSync(fd);
    return value;
  });

/** By the name of the synchronous form, without `Sync`. */
const PERFORMED: Readonly<Record<string, Performed>> = {
  access: ofPath,
  exists: ofPath,
  lstat: ofPath,
  readFile: ofPath,
  readdir: ofPath,
  stat: ofPath,
  realpath: ofPath,
  fstat: ofDescriptor,
  read: ofDescriptor,
  fsync: syncing,
  fdatasync: syncing,
  mkdir: writing([0], (disk, [file], run) => {
    const made = [path.resolve(file as string)];
    // The parent directories that `recursive` creates.
    while (inodeAt(path.dirname(made[0] as string)) === null) made.unshift(path.dirname(made[0] as string));
    return disk.files.names(made, null, run);
  }),
  rename: writing([0, 1], (disk, args, run) => {
    const [from, to] = args as [string, string];
    return disk.files.names([from, to], to, run);
  }),
  rm: removing,
  rmdir: removing,
  unlink: removing,
  copyFile: writing([0, 1], (disk, [, to], run) => disk.files.names([to as string], null, run)),
  writeFile: writingWhole('w'),
  appendFile: writingWhole('a'),
  statfs: { ...ofPath, perform: (disk) => disk.space },
  open: {
    ...ofPath,
    perform: (disk, [file, flags], run) => {
      const fd = open(disk, file as string, flags, run) as number;
      disk.opened(fd);
      return fd;
    },
  },
  close: {
    ...ofDescriptor,
    perform: (disk, [fd], run) => {
      disk.closed(fd as number);
      return run();
    },
  },
  write: writing([], (disk, [fd, data, offset, length, position], run) => {
    const count = typeof length === 'number' ? length : lengthOf(data) - Number(offset ?? 0);
    const at = typeof data === 'string' ? offset : position;
    write(disk, fd as number, at, typeof data === 'string' ? lengthOf(data) : count, 'write');
    return run();
  }),
  writev: writing([], (disk, [fd, buffers, position], run) => {
    write(disk, fd as number, position, lengthOf(buffers), 'writev');
    return run();
  }),
  ftruncate: writing([], (disk, [fd, sizeBytes], run) => {
    cut(disk, fd as number, Number(sizeBytes ?? 0));
    return run();
  }),
};

/** The calls that a simulated process may make. */
export const FILE_CALLS: readonly string[] = Object.keys(PERFORMED);

export function performedBy(name: string): Performed {
  return PERFORMED[name] as Performed;
}
