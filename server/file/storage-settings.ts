import { ServiceError } from '../../base/errors.ts';
import type { CatalogNumber } from '../../base/ids.ts';
import { InodeVolumes } from '../../base/inode-volumes.ts';
import type {
  DirectoryClass,
  FileSettings,
  Query,
  QueryResults,
  ServerInfo,
  VolumeInfo,
} from '../../wire/catalog-api.ts';
import type { PlacementClass } from '../../wire/placement-class.ts';
import type { Clock } from '../process/clock.ts';
import type { CallOptions } from '../routing/router.ts';

/** Validity of a volume's cached settings: the catalog refuses a creation by outdated ones. Files' are not cached. */
const KNOWN_MS = 1_000;
/** Directories whose volume is cached. */
const DIRECTORIES_MAX = 20_000;

export interface VolumeStorage {
  readonly volume: VolumeInfo;
  readonly servers: readonly ServerInfo[];
}

/** What says where new files of a volume are, unless their directory does. */
export type ClassedVolume = Pick<VolumeInfo, 'name' | 'root' | 'replicas' | 'labels' | 'zones'>;

/** Servers and number of replicas of new files. */
export interface FileClass extends PlacementClass {
  readonly replicas: number;
}

export interface StorageSettingsParts {
  readonly clock: Pick<Clock, 'nowMs'>;
  catalogOf(inode: number): CatalogNumber;
  query<Q extends Query>(query: Q, options?: CallOptions): Promise<QueryResults[Q['kind']]>;
}

interface KnownClasses {
  readonly classes: readonly DirectoryClass[];
  readonly untilMs: number;
  /** Directories that have one. */
  readonly has: ReadonlySet<number>;
  /** Directories that had none when the classes were fetched because of them. */
  readonly without: ReadonlySet<number>;
}

/** The catalog's storage settings: of volumes and directories at most a second old, of files current. */
export class StorageSettings {
  readonly #parts: StorageSettingsParts;
  readonly #volumes: InodeVolumes;
  readonly #known = new Map<string, VolumeStorage & { readonly untilMs: number }>();
  readonly #classes = new Map<CatalogNumber, KnownClasses>();

  constructor(parts: StorageSettingsParts) {
    this.#parts = parts;
    const { clock, catalogOf, query } = parts;
    const ask = async (inode: number): Promise<string> =>
      (await query({ kind: 'attributes', inode })).attributes.volume;
    this.#volumes = new InodeVolumes({ nowMs: () => clock.nowMs(), catalogOf, ask }, DIRECTORIES_MAX);
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

  /** The class of new files in a directory that has this placement. */
  async ofClass({ name, root, replicas, ...ofVolume }: ClassedVolume, placement: number): Promise<FileClass> {
    const found =
      placement === 0
        ? undefined
        : (await this.#classesWith(placement, this.#parts.catalogOf(root))).find(
            (one) => one.directory === placement && one.volume === name,
          );
    return { replicas, ...(found ?? ofVolume) };
  }

  /** The caller knows of a class of the directory: those that were fetched before it was set are without it. */
  async #classesWith(directory: number, catalog: CatalogNumber): Promise<readonly DirectoryClass[]> {
    const { query, clock } = this.#parts;
    const known = this.#classes.get(catalog);
    const isValid = known !== undefined && clock.nowMs() < known.untilMs;
    if (isValid && (known.has.has(directory) || known.without.has(directory))) return known.classes;
    const { classes } = await query({ kind: 'placement-classes' }, { catalog });
    const has = new Set(classes.map((one) => one.directory));
    const without = new Set([...(isValid ? known.without : []), directory].filter((one) => !has.has(one)));
    this.#classes.set(catalog, { classes, has, without, untilMs: clock.nowMs() + KNOWN_MS });
    return classes;
  }

  async servers(): Promise<readonly ServerInfo[]> {
    return (await this.#parts.query({ kind: 'servers', counts: false })).servers;
  }

  /** @returns null if a majority does not suffice for the volume's files, or there is no such directory */
  async ofDirectory(directory: number | undefined): Promise<VolumeStorage | null> {
    if (directory === undefined) return null;
    try {
      const storage = await this.ofVolume(await this.#volumes.of(directory));
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
}
