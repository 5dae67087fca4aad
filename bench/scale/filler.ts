import { randomInt } from 'node:crypto';
import { isRefusal, ServiceError } from '../../base/errors.ts';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import type { RealCluster } from '../../test/cluster/real-cluster.ts';
import type { FileWithContents } from '../../wire/new-files.ts';
import { NEW_FILES_MAX } from '../../wire/request-limits.ts';
import { systemWorld } from '../../world/system-world.ts';

/** Files of one directory. */
export const DIRECTORY_FILES = 1_000;
const WORKERS = 6;
const CONTENTS = Buffer.alloc(200, 'contents');
const ATTEMPTS_MAX = 20;

/** Fills a volume with files of 200 bytes, a thousand in a directory, many in a request as `tar -x` on a mount does. */
export class Filler {
  readonly #cluster: RealCluster;
  readonly #volume: string;
  #directories = 0;

  constructor(cluster: RealCluster, volume: string) {
    this.#cluster = cluster;
    this.#volume = volume;
  }

  /** Adds files until there are `count`, rounded up to whole directories. */
  async fillTo(count: number): Promise<void> {
    const until = Math.ceil(count / DIRECTORY_FILES);
    const worker = async (): Promise<void> => {
      await using client = new ClusterClient({ world: systemWorld, servers: this.#cluster.urls });
      while (this.#directories < until) await this.#fill(client, this.#directories++);
    };
    await Promise.all(Array.from({ length: WORKERS }, worker));
  }

  async #fill(client: ClusterClient, directory: number): Promise<void> {
    const place = { volume: this.#volume, path: `/d${directory}` };
    const { attributes } = await client.command({
      kind: 'make-directory',
      place,
      mode: 0o755,
      uid: 0,
      gid: 0,
    });
    const { inode } = attributes;
    for (let attempts = 0; attempts < ATTEMPTS_MAX; attempts++) {
      const missing = await missingIn(client, inode);
      if (missing.length === 0) return;
      try {
        await this.#create(client, inode, missing);
      } catch (error) {
        // A busy machine: what was created shows in the next listing.
        if (!(error instanceof ServiceError) || isRefusal(error)) throw error;
      }
    }
    throw new Error(`The directory ${place.path} cannot be filled`);
  }

  async #create(client: ClusterClient, parent: number, names: readonly string[]): Promise<void> {
    const numbers = await client.reserveInodes(names.length, { volume: this.#volume });
    const files: FileWithContents[] = names.map((name, place) => ({
      ...{ parent, name, inode: numbers.first + place, mode: 0o644, uid: 0, gid: 0 },
      ...{ accessedNs: null, modifiedNs: null, changedNs: null, contents: CONTENTS },
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
