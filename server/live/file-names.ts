import type { Logger } from 'pino';
import { LruMap } from '../../base/bounded-map.ts';
import { isRefusal, ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { Gateway } from '../routing/gateway.ts';
import { type Location, locationOf } from '../routing/location.ts';
import { LastValues } from './last-values.ts';

const NAMES_MAX = 2_000;
const ANSWER_MS_MAX = 3_000;
/** Files per query, and the pause after it: this many times the query's duration. */
const BATCH_MAX = 100;
const PAUSE_MS_MIN = 1_000;
const PAUSE_FACTOR = 20;

/** Caches names of files for the live view: its watchers do not wait for the catalog. */
export class FileNames {
  readonly #gateway: Gateway;
  readonly #log: Logger;
  readonly #world: World;
  readonly #names = new LruMap<FileId, string>(NAMES_MAX);
  /** An upload may put another file at a name. */
  readonly #files: LastValues<FileId>;

  readonly #wanted = new Map<FileId, ((name: string | null) => void)[]>();
  #isQuerying = false;

  constructor(gateway: Gateway, log: Logger, world: World) {
    this.#gateway = gateway;
    this.#log = log;
    this.#world = world;
    this.#files = new LastValues({
      max: NAMES_MAX,
      nowMs: () => world.nowMs(),
      failed: (error) => this.#logFailure(error),
    });
  }

  /** Returns `VOLUME:/path` of a file; null if it has no name, or the catalog does not answer. */
  nameOf(file: FileId): Promise<string | null> {
    const known = this.#names.get(file);
    if (known !== undefined) return Promise.resolve(known);
    return new Promise((resolve) => {
      if (this.#wanted.size >= BATCH_MAX) return resolve(null);
      this.#wanted.set(file, [...(this.#wanted.get(file) ?? []), resolve]);
      if (!this.#isQuerying) void this.#queryInBatches();
    });
  }

  /** Queries the wanted names, rarely and many at once: the catalog scans all its names for each query. */
  async #queryInBatches(): Promise<void> {
    this.#isQuerying = true;
    while (this.#wanted.size > 0) {
      const wanted = new Map(this.#wanted);
      this.#wanted.clear();
      const sinceMs = this.#world.nowMs();
      await this.#query([...wanted.keys()]);
      for (const [file, resolves] of wanted) {
        for (const resolve of resolves) resolve(this.#names.get(file) ?? null);
      }
      const pauseMs = Math.max(PAUSE_MS_MIN, PAUSE_FACTOR * (this.#world.nowMs() - sinceMs));
      await this.#world.sleep(pauseMs, { unref: true });
    }
    this.#isQuerying = false;
  }

  async #query(inodes: readonly FileId[]): Promise<void> {
    try {
      const { paths } = await this.#gateway.queryCatalog(
        { kind: 'paths', inodes: [...inodes] },
        { timeoutMs: ANSWER_MS_MAX },
      );
      for (const { inode, volume, path } of paths) this.#names.set(inode as FileId, `${volume}:${path}`);
    } catch (error) {
      this.#logFailure(error);
    }
  }

  /** Returns the file at a path as last received; null if that is unknown, or if there is none. */
  fileAt(place: { readonly volume: string; readonly path: string }): FileId | null {
    const name = `${place.volume}:${place.path}`;
    return this.#files.get(name, () => this.#resolve(name, place));
  }

  async #resolve(
    name: string,
    place: { readonly volume: string; readonly path: string },
  ): Promise<FileId | null> {
    try {
      const resolve = (location: Location) =>
        this.#gateway.queryCatalog(
          { kind: 'resolve', ...location, follow: true },
          { timeoutMs: ANSWER_MS_MAX },
        );
      const { catalogs } = this.#gateway.services;
      // Only clients of all volumes watch the cluster.
      const { found } = await locationOf({ catalogs, resolve }, place);
      if (found?.attributes.kind !== 'file') return null;
      const file = found.attributes.inode as FileId;
      this.#names.set(file, name);
      return file;
    } catch (error) {
      if (!isRefusal(error)) throw error;
      this.#logFailure(error);
      return null;
    }
  }

  #logFailure(error: unknown): void {
    this.#log[error instanceof ServiceError ? 'trace' : 'warn'](
      { err: error },
      'cannot query file names for the live view',
    );
  }
}
