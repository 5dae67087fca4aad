import type { Stats } from 'node:fs';
import {
  appendFile,
  chmod,
  chown,
  type FileHandle,
  link,
  lstat,
  mkdir,
  open,
  readdir,
  readFile,
  readlink,
  rename,
  rmdir,
  stat,
  symlink,
  truncate,
  unlink,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { basename, dirname } from 'node:path';
import type { Program } from '../posix/program.ts';

/** A mount, as its programs use it. */
export interface Place {
  path(...names: string[]): string;
  /** Maps files, which Node cannot. */
  readonly program: Program;
  /** Open handles, by name. */
  readonly held: Map<string, Promise<FileHandle>>;
}

/** The answer to a query, as text, and how it compares with versions. */
export interface Sight {
  readonly text: string;
  shows(version: number): boolean;
  /** For mapped memory: whether the answer consists of parts of the versions in a range. */
  mixes?(from: number, to: number): boolean;
}

/** Something on the volume that has versions, and the queries that show its version. */
export interface Subject {
  readonly name: string;
  /** Creates it as version 0. */
  make(at: Place): Promise<void>;
  change(at: Place, version: number): Promise<void>;
  readonly looks: Readonly<Record<string, (place: Place) => Promise<Sight>>>;
}

const MODES = 0o1000;
const MARK_BYTES = 10;
/** Within one page, which is read and written as a whole; a copy from mapped memory is not atomic. */
const BLOCK_BYTES = 4_000;

const isOdd = (version: number): boolean => version % 2 === 1;
const ownerOf = (version: number): number => 1000 + version;
const sizeOf = (version: number): number => (version * 7919) % 300_000;
const textOf = (version: number): string => `version ${version};`.repeat(1 + (version % 300));
const markOf = (version: number): string => `#${String(version).padStart(MARK_BYTES - 2, '0')};`;
const blockOf = (version: number): string => markOf(version).repeat(BLOCK_BYTES / MARK_BYTES);

function sight<Value>(value: Value, of: (version: number) => Value): Sight {
  const text = String(value);
  return {
    text: text.length > 60 ? `${text.slice(0, 60)}… (${text.length})` : text,
    shows: (version) => of(version) === value,
  };
}

function mapped(value: string, of: (version: number) => string): Sight {
  return {
    ...sight(value, of),
    mixes: (from, to) => {
      const versions = Array.from({ length: to + 1 - from }, (_, place) => of(from + place));
      return [...value].every((one, at) => versions.some((text) => text[at] === one));
    },
  };
}

async function isThere(path: string): Promise<boolean> {
  try {
    await lstat(path);
    return true;
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return false;
    throw error;
  }
}

async function isListed(path: string): Promise<boolean> {
  return (await readdir(dirname(path))).includes(basename(path));
}

function held(place: Place, name: string): Promise<FileHandle> {
  let handle = place.held.get(name);
  if (handle === undefined) {
    handle = open(place.path(name), 'r');
    place.held.set(name, handle);
  }
  return handle;
}

/** One attribute of a directory in which nothing is created, or of a file that is not written. */
function attribute(
  name: string,
  make: (path: string) => Promise<unknown>,
  change: (path: string, version: number) => Promise<unknown>,
  of: (stats: Stats) => number,
  shown: (version: number) => number,
): Subject {
  return {
    name,
    make: async (at) => {
      await make(at.path(name));
      await change(at.path(name), 0);
    },
    change: async (at, version) => {
      await change(at.path(name), version);
    },
    looks: {
      stat: async (place) => sight(of(await stat(place.path(name))), shown),
      // Answered by the kernel alone while it may cache the attributes.
      fstat: async (place) => sight(of(await (await held(place, name)).stat()), shown),
    },
  };
}

function attributes(name: string, make: (path: string) => Promise<unknown>): Subject[] {
  return [
    attribute(
      `${name}-times`,
      make,
      (path, version) => utimes(path, version, version),
      ({ mtimeMs }) => Math.round(mtimeMs / 1000),
      (version) => version,
    ),
    attribute(
      `${name}-mode`,
      make,
      (path, version) => chmod(path, version % MODES),
      ({ mode }) => mode % MODES,
      (version) => version % MODES,
    ),
    attribute(
      `${name}-owner`,
      make,
      (path, version) => chown(path, ownerOf(version), ownerOf(version)),
      ({ uid }) => uid,
      ownerOf,
    ),
  ];
}

/** A name that exists at odd versions. */
function presence(
  name: string,
  appear: (at: Place, path: string) => Promise<unknown>,
  disappear: (path: string) => Promise<unknown>,
): Subject {
  return {
    name,
    make: async () => undefined,
    change: async (at, version) => {
      const path = at.path(name);
      await (isOdd(version) ? appear(at, path) : disappear(path));
    },
    looks: {
      lstat: async (place) => sight(await isThere(place.path(name)), isOdd),
      readdir: async (place) => sight(await isListed(place.path(name)), isOdd),
    },
  };
}

/** The contents of a file, by each way to read it. */
function contents(name: string, of: (version: number) => string): Subject['looks'] {
  const bytesOf = (version: number): number => of(version).length;
  return {
    read: async (place) => sight(await readFile(place.path(name), 'utf8'), of),
    stat: async (place) => sight((await stat(place.path(name))).size, bytesOf),
  };
}

/**
 * The same, and by mapped memory. Not for files that become shorter: an access to a page beyond the end kills the
 * program.
 */
function mappedContents(name: string, of: (version: number) => string): Subject['looks'] {
  return {
    ...contents(name, of),
    map: async (place) => {
      const { value, errno } = await place.program.call('mapped-read', place.path(name), 0, 1_000_000);
      // An empty file cannot be mapped.
      if (errno?.startsWith('ValueError') === true) return mapped('', of);
      if (value === undefined) throw new Error(`mapped-read: ${errno}`);
      return mapped(value, of);
    },
  };
}

/**
 * @returns subjects that a transport does not support: through libfuse an open file takes the size of the file that
 * replaces its name
 */
export function unpromised(transport: string): readonly string[] {
  return transport === 'native' ? ['replaced'] : [];
}

/** @param number distinguishes this group from others */
export function subjects(number: number): Subject[] {
  const named = (name: string): string => `${name}-${number}`;
  const [log, block, replaced, cut, target, linked, moved] = ['log', 'block', 'replaced', 'cut', 'target']
    .concat(['linked', 'moved'])
    .map(named) as [string, string, string, string, string, string, string];
  return [
    ...attributes(named('directory'), (path) => mkdir(path)),
    ...attributes(named('file'), (path) => writeFile(path, 'contents')),
    presence(named('made-directory'), (_at, path) => mkdir(path), rmdir),
    presence(named('made-file'), (_at, path) => writeFile(path, ''), unlink),
    presence(named('made-link'), (_at, path) => symlink('target', path), unlink),
    {
      name: linked,
      make: (at) => writeFile(at.path(linked), 'linked'),
      change: async (at, version) => {
        const second = at.path(`${linked}-second`);
        await (isOdd(version) ? link(at.path(linked), second) : unlink(second));
      },
      looks: {
        links: async (place) => sight((await stat(place.path(linked))).nlink === 2, isOdd),
        fstat: async (place) => sight((await (await held(place, linked)).stat()).nlink === 2, isOdd),
        second: async (place) => sight(await isThere(place.path(`${linked}-second`)), isOdd),
      },
    },
    {
      name: moved,
      make: (at) => writeFile(at.path(moved), 'moved'),
      change: async (at, version) => {
        const names = [at.path(moved), at.path(`${moved}-away`)] as const;
        await (isOdd(version) ? rename(names[0], names[1]) : rename(names[1], names[0]));
      },
      looks: {
        old: async (place) => sight(!(await isThere(place.path(moved))), isOdd),
        new: async (place) => sight(await isThere(place.path(`${moved}-away`)), isOdd),
        readdir: async (place) => sight(await isListed(place.path(`${moved}-away`)), isOdd),
      },
    },
    {
      name: target,
      make: (at) => symlink(textOf(0), at.path(target)),
      change: async (at, version) => {
        await symlink(markOf(version), at.path(`${target}-${version}`));
        await rename(at.path(`${target}-${version}`), at.path(target));
      },
      looks: {
        readlink: async (place) =>
          sight(await readlink(place.path(target)), (version) =>
            version === 0 ? textOf(0) : markOf(version),
          ),
      },
    },
    {
      name: replaced,
      make: (at) => writeFile(at.path(replaced), textOf(0)),
      change: async (at, version) => {
        await writeFile(at.path(`${replaced}-${version}`), textOf(version));
        await rename(at.path(`${replaced}-${version}`), at.path(replaced));
      },
      looks: mappedContents(replaced, textOf),
    },
    {
      name: block,
      make: (at) => writeFile(at.path(block), blockOf(0)),
      change: async (at, version) => {
        const file = await open(at.path(block), 'r+');
        try {
          await file.write(blockOf(version), 0);
        } finally {
          await file.close();
        }
      },
      looks: mappedContents(block, blockOf),
    },
    {
      name: log,
      make: (at) => writeFile(at.path(log), ''),
      change: (at, version) => appendFile(at.path(log), markOf(version)),
      looks: mappedContents(log, (version) =>
        Array.from({ length: version }, (_, index) => markOf(index + 1)).join(''),
      ),
    },
    {
      name: cut,
      make: (at) => writeFile(at.path(cut), ''),
      change: (at, version) => truncate(at.path(cut), sizeOf(version)),
      looks: contents(cut, (version) => '\0'.repeat(sizeOf(version))),
    },
  ];
}
