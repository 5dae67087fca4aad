import { createReadStream } from 'node:fs';
import { access, mkdir, open, readdir } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { isSystemError } from '../terminal/failure.ts';
import { writeFileAtomically } from '../transfer/atomic-file.ts';

export const LINK_SUFFIX = '.lhb';
const READ_BYTES = 1024 * 1024;
const MODE = 0o600;

/** Where the backups of a chain are: each has a name, and is there as a whole or not at all. */
export interface BackupStore {
  /** For people. */
  readonly place: string;
  names(): Promise<string[]>;
  read(name: string): AsyncIterable<Uint8Array>;
  /**
   * @param expectedBytes about how many there are, for stores that divide them
   * @throws if the name is taken
   */
  write(name: string, source: AsyncIterable<Uint8Array>, expectedBytes: number): Promise<void>;
}

/** A place of backups: a whole store, or one file of it. */
export interface ChainPlace {
  readonly store: BackupStore;
  readonly name: string | null;
}

export function isLinkName(name: string): boolean {
  return name.endsWith(LINK_SUFFIX) && !name.startsWith('.');
}

export class DirectoryStore implements BackupStore {
  readonly place: string;

  constructor(place: string) {
    this.place = place;
  }

  async names(): Promise<string[]> {
    try {
      return (await readdir(this.place)).filter(isLinkName).sort();
    } catch (error) {
      if (isSystemError(error) && error.code === 'ENOENT') return [];
      throw error;
    }
  }

  read(name: string): AsyncIterable<Uint8Array> {
    return createReadStream(join(this.place, name), { highWaterMark: READ_BYTES });
  }

  /** An unfinished file has another name; the finished one survives power loss. */
  async write(name: string, source: AsyncIterable<Uint8Array>): Promise<void> {
    await mkdir(this.place, { recursive: true });
    const path = join(this.place, name);
    if (await exists(path)) {
      const error = Object.assign(new Error('it exists already'), {
        code: 'EEXIST',
        errno: -17,
        syscall: 'create',
        path,
      });
      throw error;
    }
    await writeFileAtomically(path, MODE, async (file) => {
      for await (const piece of source) await file.appendFile(piece);
    });
    await syncDirectory(this.place);
  }
}

/** The store of a single file: the chain is what is in its directory. */
export function storeOfFile(path: string): ChainPlace {
  return { store: new DirectoryStore(dirname(path)), name: basename(path) };
}

async function exists(path: string): Promise<boolean> {
  try {
    await access(path);
    return true;
  } catch (error) {
    if (isSystemError(error) && error.code === 'ENOENT') return false;
    throw error;
  }
}

async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, 'r');
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}
