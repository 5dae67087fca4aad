import { randomInt } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { isRefusal, ServiceError } from '../../base/errors.ts';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import type { RealCluster } from '../../test/cluster/real-cluster.ts';
import type { FileWithContents } from '../../wire/new-files.ts';
import { NEW_FILES_MAX } from '../../wire/request-limits.ts';
import { systemWorld } from '../../world/system-world.ts';
import { BYTES_DEFAULT } from './arguments.ts';
import { FillProgress } from './fill-progress.ts';

/** Files of one directory. */
export const DIRECTORY_FILES = 1_000;
const WORKERS = 6;
const ATTEMPTS_MAX = 100;
const PAUSE_MS = 1_000;
/** A client remembers each of its changes until a flush, so a fill of hours uses many clients. */
const DIRECTORIES_PER_CLIENT = 50;

/** Fills a volume with small files, a thousand in a directory, many in a request as `tar -x` on a mount does. */
export class Filler {
  readonly #cluster: RealCluster;
  readonly #volume: string;
  readonly #contents: Buffer;
  #directories = 0;

  /** @param bytes size of each file; files without contents take no space but in the databases */
  constructor(cluster: RealCluster, volume: string, bytes = BYTES_DEFAULT) {
    this.#cluster = cluster;
    this.#volume = volume;
    this.#contents = Buffer.alloc(bytes, 'contents');
  }

  /** Adds files until there are `count`, rounded up to whole directories. Shows its progress on standard error. */
  async fillTo(count: number): Promise<void> {
    const until = Math.ceil(count / DIRECTORY_FILES);
    using progress = new FillProgress(this.#directories * DIRECTORY_FILES, until * DIRECTORY_FILES);
    const worker = async (): Promise<void> => {
      while (this.#directories < until) {
        await using client = new ClusterClient({ world: systemWorld, servers: this.#cluster.urls });
        for (let some = 0; some < DIRECTORIES_PER_CLIENT && this.#directories < until; some++) {
          await this.#fill(client, `/d${this.#directories++}`);
          progress.add(DIRECTORY_FILES);
        }
      }
    };
    await Promise.all(Array.from({ length: WORKERS }, worker));
  }

  async #fill(client: ClusterClient, path: string): Promise<void> {
    let failure: ServiceError | null = null;
    for (let attempts = 0; attempts < ATTEMPTS_MAX; attempts++) {
      try {
        const inode = await this.#directory(client, path);
        const missing = await missingIn(client, inode);
        if (missing.length === 0) return;
        await this.#create(client, inode, missing);
        if ((await missingIn(client, inode)).length === 0) return;
        await delay(PAUSE_MS);
      } catch (error) {
        // A busy machine: what was created shows in the next listing.
        if (!(error instanceof ServiceError) || isRefusal(error)) throw error;
        failure = error;
        await delay(PAUSE_MS);
      }
    }
    throw new Error(`The directory ${path} cannot be filled`, { cause: failure });
  }

  /** @returns the number of the directory, which an earlier attempt may have created */
  async #directory(client: ClusterClient, path: string): Promise<number> {
    try {
      return (await client.resolve(this.#volume, path)).inode;
    } catch (error) {
      if (!(error instanceof ServiceError) || error.code !== 'not-found') throw error;
    }
    const place = { volume: this.#volume, path };
    const { attributes } = await client.command({
      ...{ kind: 'make-directory', place, mode: 0o755, uid: 0, gid: 0 },
    } as const);
    return attributes.inode;
  }

  async #create(client: ClusterClient, parent: number, names: readonly string[]): Promise<void> {
    const numbers = await client.reserveInodes(names.length, { volume: this.#volume });
    const files: FileWithContents[] = names.map((name, place) => ({
      ...{ parent, name, inode: numbers.first + place, mode: 0o644, uid: 0, gid: 0 },
      ...{ accessedNs: null, modifiedNs: null, changedNs: null, contents: this.#contents },
    }));
    for (let from = 0; from < files.length; from += NEW_FILES_MAX) {
      const some = files.slice(from, from + NEW_FILES_MAX);
      await client.createWithContents(numbers.creatingServer, some);
    }
  }

  /** A directory of those that are filled, at random. */
  randomDirectory(): string {
    return `/d${randomInt(0, this.#directories)}`;
  }
}

async function missingIn(client: ClusterClient, inode: number): Promise<string[]> {
  const { entries } = await client.query({ kind: 'list', inode, after: '', countMax: DIRECTORY_FILES });
  const there = new Set(entries.map(({ name }) => name));
  const names = Array.from({ length: DIRECTORY_FILES }, (_, number) => `a file with number ${number}`);
  return names.filter((name) => !there.has(name));
}
