/**
 * Small files that are created with contents while snapshots are made: which of them a snapshot must show, may show,
 * and must not show.
 */
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
  /** Files that a server reported as not created: no snapshot may show them. */
  readonly #unborn = new Set<string>();

  /** @param parent inode of the directory */
  constructor(urls: readonly string[], parent: number) {
    this.#client = new ClusterClient({ world: systemWorld, servers: urls, operationTimeoutMs: CALL_MS });
    this.#parent = parent;
  }

  /** The names of acknowledged files. */
  get born(): readonly string[] {
    return [...this.#born.keys()];
  }

  get inodes(): readonly number[] {
    return [...this.#born.values()];
  }

  /** @returns the contents of a file with this name */
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
      // The outcome is unknown.
      if (!(error instanceof ServiceError)) throw error;
    }
  }

  /**
   * @param shown names that a snapshot shows
   * @param owed names that were acknowledged before the snapshot was requested
   * @param ackedMs when the snapshot was acknowledged
   * @returns errors, as text
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
