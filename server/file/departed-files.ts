import fs from 'node:fs/promises';
import path from 'node:path';
import type { FileId } from '../../base/ids.ts';
import { isFileId } from '../../base/ids.ts';
import type { View } from '../../replica/view.ts';
import { FolderError } from '../storage/folder-error.ts';

interface Line {
  readonly file: FileId;
  readonly view: View;
}

/**
 * Files whose replicas moved away and were removed here, with the view that removed them. A member that lags may still
 * use an older view and count this server for a majority: it must not vote then like a server that never had the file.
 * An entry, a line of JSON that is synced before the replica is removed, is kept until the file is deleted for good.
 */
export class DepartedFiles {
  readonly #path: string;
  readonly #views: Map<FileId, View>;
  #work: Promise<void> = Promise.resolve();
  /** The file on the disk may end in part of a line. */
  #torn = false;

  private constructor(file: string, views: Map<FileId, View>) {
    this.#path = file;
    this.#views = views;
  }

  /** Reads the file. Drops a last line that a crash cut short: that removal was not acknowledged. */
  static async open(file: string): Promise<DepartedFiles> {
    const views = new Map<FileId, View>();
    for (const text of (await readLines(file)).slice(0, -1)) {
      const { file: id, view } = readLine(text, file);
      views.set(id, view);
    }
    const departed = new DepartedFiles(file, views);
    await departed.#rewrite();
    return departed;
  }

  /** @returns the view in which this server is no member any more; null if the file was never removed here */
  view(file: FileId): View | null {
    return this.#views.get(file) ?? null;
  }

  files(): FileId[] {
    return [...this.#views.keys()];
  }

  /** Adds the view that removed this server from the file. Resolves when the entry survives loss of power. */
  add(file: FileId, removedIn: View): Promise<void> {
    return this.#next(async () => {
      const handle = await fs.open(this.#path, 'a');
      try {
        await handle.writeFile(`${JSON.stringify({ file, view: removedIn } satisfies Line)}\n`);
        await handle.datasync();
      } catch (error) {
        // Part of the line may be there: the next line must not be appended to it.
        this.#torn = true;
        throw error;
      } finally {
        await handle.close();
      }
      this.#views.set(file, removedIn);
    });
  }

  /** Removes the entries of files that are deleted for good: their ids are never used again. */
  forget(files: readonly FileId[]): Promise<void> {
    if (files.length === 0) return Promise.resolve();
    return this.#next(() => {
      for (const file of files) this.#views.delete(file);
      return this.#rewrite();
    });
  }

  #next(change: () => Promise<void>): Promise<void> {
    const done = this.#work.then(() => (this.#torn ? this.#rewrite() : undefined)).then(change);
    this.#work = done.catch(() => undefined);
    return done;
  }

  async #rewrite(): Promise<void> {
    const text = [...this.#views].map(([file, view]) => `${JSON.stringify({ file, view } satisfies Line)}\n`);
    const beside = `${this.#path}.new`;
    this.#torn = true;
    await fs.writeFile(beside, text.join(''), { flush: true });
    await fs.rename(beside, this.#path);
    const folder = await fs.open(path.dirname(this.#path), 'r');
    try {
      await folder.sync();
    } finally {
      await folder.close();
    }
    this.#torn = false;
  }
}

function readLine(text: string, path: string): Line {
  try {
    const line = JSON.parse(text) as Line;
    if (isFileId(line.file) && line.view.number > 0) return line;
  } catch (cause) {
    throw damaged(path, cause);
  }
  throw damaged(path, null);
}

function damaged(path: string, cause: unknown): FolderError {
  return new FolderError(
    'damaged',
    `Cannot read ${path}: it is damaged. Start with --rebuild, which moves the data folder aside and ` +
      're-creates all replicas from the other servers',
    { cause },
  );
}

async function readLines(file: string): Promise<string[]> {
  try {
    return (await fs.readFile(file, 'utf8')).split('\n');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [''];
    throw error;
  }
}
