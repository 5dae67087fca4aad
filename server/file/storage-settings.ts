import { LruMap } from '../../base/bounded-map.ts';
import { ServiceError } from '../../base/errors.ts';
import type { FileSettings, Query, QueryResults, ServerInfo, VolumeInfo } from '../../wire/catalog-api.ts';
import type { Clock } from '../process/clock.ts';
import type { CallOptions } from '../routing/router.ts';

/** Validity of a volume's cached settings: the catalog refuses a creation by outdated ones. Files' are not cached. */
const KNOWN_MS = 1_000;
/** Directories whose volume is cached: an inode never leaves its volume. */
const DIRECTORIES_MAX = 20_000;

export interface VolumeStorage {
  readonly volume: VolumeInfo;
  readonly servers: readonly ServerInfo[];
}

export interface StorageSettingsParts {
  readonly clock: Pick<Clock, 'nowMs'>;
  query<Q extends Query>(query: Q, options?: CallOptions): Promise<QueryResults[Q['kind']]>;
}

/** The catalog's storage settings: of volumes at most a second old, of files current. */
export class StorageSettings {
  readonly #parts: StorageSettingsParts;
  readonly #volumes = new LruMap<number, string>(DIRECTORIES_MAX);
  readonly #known = new Map<string, VolumeStorage & { readonly untilMs: number }>();

  constructor(parts: StorageSettingsParts) {
    this.#parts = parts;
  }

  async ofVolume(name: string): Promise<VolumeStorage> {
    const { query, clock } = this.#parts;
    const known = this.#known.get(name);
    if (known !== undefined && clock.nowMs() < known.untilMs) return known;
    this.#known.delete(name);
    const [{ volume }, servers] = await Promise.all([query({ kind: 'volume', name }), this.servers()]);
    const storage = { volume, servers, untilMs: clock.nowMs() + KNOWN_MS };
    this.#known.set(name, storage);
    return storage;
  }

  async servers(): Promise<readonly ServerInfo[]> {
    return (await this.#parts.query({ kind: 'servers', counts: false })).servers;
  }

  /** @returns null if a majority does not suffice for the volume's files, or there is no such directory */
  async ofDirectory(directory: number | undefined): Promise<VolumeStorage | null> {
    if (directory === undefined) return null;
    try {
      const storage = await this.ofVolume(this.#volumes.get(directory) ?? (await this.#volumeOf(directory)));
      return storage.volume.policy === 'quorum' ? storage : null;
    } catch (error) {
      // The client creates the file in two steps, and gets the error there.
      if (error instanceof ServiceError && error.code === 'not-found') return null;
      throw error;
    }
  }

  /**
   * Each existing file is in the volume of its own directory, with that volume's settings of the time. The cached
   * volume of the request may be older, or another one.
   * @returns settings by inode; none for deleted files, or if the catalog's primary runs an earlier release
   */
  async ofFiles(inodes: readonly number[], options: CallOptions): Promise<ReadonlyMap<number, FileSettings>> {
    if (inodes.length === 0) return new Map();
    const { files } = await this.#parts.query(
      { kind: 'placed', inodes: [...inodes], settings: true },
      options,
    );
    return new Map(
      files.flatMap(({ inode, settings }) => (settings === undefined ? [] : [[inode, settings]])),
    );
  }

  async #volumeOf(directory: number): Promise<string> {
    const { attributes } = await this.#parts.query({ kind: 'attributes', inode: directory });
    this.#volumes.set(directory, attributes.volume);
    return attributes.volume;
  }
}
