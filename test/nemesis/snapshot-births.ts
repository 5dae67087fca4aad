/** Small files that come as a whole while snapshots are made: which of them a snapshot has to show, may show, and must not. */
import { ServiceError } from '../../base/errors.ts';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { systemWorld } from '../../world/system-world.ts';

/** Files of one request. */
const FILES = 2;
const CALL_MS = 12_000;

export class SnapshotBirths {
  readonly #client: ClusterClient;
  readonly #parent: number;
  readonly #begunMs = new Map<string, number>();
  readonly #born = new Map<string, number>();
  /** Whoever was told that a file is not there is not shown it later. */
  readonly #unborn = new Set<string>();

  /** @param parent inode of the directory */
  constructor(urls: readonly string[], parent: number) {
    this.#client = new ClusterClient({ world: systemWorld, servers: urls, operationTimeoutMs: CALL_MS });
    this.#parent = parent;
  }

  /** Names of the files that were acknowledged. */
  get born(): readonly string[] {
    return [...this.#born.keys()];
  }

  get inodes(): readonly number[] {
    return [...this.#born.values()];
  }

  /** What a file of this name has in it. */
  static contentsOf(name: string): string {
    return `${name}\n`;
  }

  async bear(): Promise<void> {
    try {
      const { first, creatingServer } = await this.#client.reserveInodes(FILES);
      const names = Array.from({ length: FILES }, () => {
        const name = `b${this.#begunMs.size}`;
        this.#begunMs.set(name, performance.now());
        return name;
      });
      const births = names.map((name, place) => ({
        ...{ parent: this.#parent, name, inode: first + place, mode: 0o644, uid: 0, gid: 0 },
        ...{ accessedNs: null, modifiedNs: null, changedNs: null },
        contents: Buffer.from(SnapshotBirths.contentsOf(name)),
      }));
      const outcomes = await this.#client.createWithContents(creatingServer, births);
      for (const [place, { kind }] of outcomes.entries()) {
        if (kind === 'created') this.#born.set(names[place] as string, first + place);
        else this.#unborn.add(names[place] as string);
      }
    } catch (error) {
      // Nobody can tell then whether they are there.
      if (!(error instanceof ServiceError)) throw error;
    }
  }

  /**
   * @param shown names that a snapshot shows
   * @param owed names that were acknowledged before it was asked for
   * @param ackedMs when it was acknowledged
   * @returns what is wrong with that, in words
   */
  faults(shown: ReadonlySet<string>, owed: readonly string[], ackedMs: number): string[] {
    const faults = owed
      .filter((name) => !shown.has(name))
      .map((name) => `lacks ${name}, which was there before it`);
    for (const name of shown) {
      if (this.#unborn.has(name)) faults.push(`has ${name}, of which was said that it is not there`);
      if ((this.#begunMs.get(name) ?? 0) > ackedMs)
        faults.push(`has ${name}, which began after it was acknowledged`);
    }
    return faults;
  }

  close(): Promise<void> {
    return this.#client.close();
  }
}
