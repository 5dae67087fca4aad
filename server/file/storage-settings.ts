import { LruMap } from '../../base/bounded-map.ts';
import { ServiceError } from '../../base/errors.ts';
import type { FileSettings, Query, QueryResults, ServerInfo, VolumeInfo } from '../../wire/catalog-api.ts';
import type { Clock } from '../clock.ts';
import type { CallOptions } from '../router.ts';

/**
 * What is known of a volume is asked for again after this, in milliseconds. `bear` refuses what the volume's settings do not permit any
 * more; of files that have their names the settings are asked for each time.
 */
const KNOWN_MS = 1_000;
/** Directories of which the volume is remembered: an inode never leaves its volume. */
const DIRECTORIES_MAX = 20_000;

/** How new files of a volume are stored, and the servers that there are. */
export interface VolumeStorage {
  readonly volume: VolumeInfo;
  readonly servers: readonly ServerInfo[];
}

export interface StorageSettingsParts {
  readonly clock: Pick<Clock, 'nowMs'>;
  query<Q extends Query>(query: Q, options?: CallOptions): Promise<QueryResults[Q['kind']]>;
}

/** How files are stored, by the catalog: by volume as it was a second ago at most, by file as it is. */
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

  /** @returns null where the volume's files are not created with contents: a majority does not suffice, or there is no such directory */
  async ofDirectory(directory: number | undefined): Promise<VolumeStorage | null> {
    if (directory === undefined) return null;
    try {
      const storage = await this.ofVolume(this.#volumes.get(directory) ?? (await this.#volumeOf(directory)));
      return storage.volume.policy === 'quorum' ? storage : null;
    } catch (error) {
      // The client creates the file in the ordinary way, and learns there what is wrong.
      if (error instanceof ServiceError && error.code === 'not-found') return null;
      throw error;
    }
  }

  /**
   * What the catalog says of files that have their names: `create-file` has put each into the volume of its own directory, under that
   * volume's settings of then. What this server remembers of the request's volume may be older, or of another volume.
   *
   * @returns settings by inode; none for files that are gone, or where the catalog's primary is of an earlier release
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
