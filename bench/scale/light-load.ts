import { setTimeout as delay } from 'node:timers/promises';
import { ServiceError } from '../../base/errors.ts';
import { inodesOf } from '../../base/ids.ts';
import type { RealCluster } from '../../test/cluster/real-cluster.ts';
import { clientOf, createFilled, type OwnVolume } from './own-volumes.ts';

const WORKERS = 3;
const PAUSE_MS = 200;
const FILES_PER_REQUEST = 5;
/** More are not created: all are read at the end. */
const FILES_MAX = 5_000;
const READERS = 8;
const READ_MS_MAX = 60_000;

interface Acknowledged {
  readonly volume: OwnVolume;
  readonly number: number;
}

/** Creates some files in some volume now and then, and remembers which ones were acknowledged. */
export class LightLoad {
  readonly #cluster: RealCluster;
  readonly #volumes: readonly OwnVolume[];
  readonly #acknowledged: Acknowledged[] = [];
  readonly #workers: readonly Promise<void>[];
  #next = 0;
  #failed = 0;
  #isEnded = false;

  constructor(cluster: RealCluster, volumes: readonly OwnVolume[]) {
    this.#cluster = cluster;
    this.#volumes = volumes;
    this.#workers = Array.from({ length: WORKERS }, () => this.#work());
  }

  get acknowledged(): readonly Acknowledged[] {
    return this.#acknowledged;
  }

  /** Requests that were not acknowledged, because servers were away. */
  get failed(): number {
    return this.#failed;
  }

  async end(): Promise<void> {
    this.#isEnded = true;
    await Promise.all(this.#workers);
  }

  /** Reads all acknowledged files at servers that run, in turn. @returns the number of those that are not there */
  async missing(servers: readonly string[]): Promise<number> {
    let next = 0;
    let missing = 0;
    const reader = async (): Promise<void> => {
      for (let place = next++; place < this.#acknowledged.length; place = next++) {
        const file = this.#acknowledged[place] as Acknowledged;
        if (!(await isThere(this.#cluster, servers[place % servers.length] as string, file))) missing += 1;
      }
    };
    await Promise.all(Array.from({ length: READERS }, reader));
    return missing;
  }

  async #work(): Promise<void> {
    while (!this.#isEnded && this.#next < FILES_MAX) {
      const first = this.#next;
      this.#next += FILES_PER_REQUEST;
      const volume = this.#volumes[(first / FILES_PER_REQUEST) % this.#volumes.length] as OwnVolume;
      const numbers = Array.from({ length: FILES_PER_REQUEST }, (_, place) => first + place);
      await using client = clientOf(this.#cluster, volume);
      try {
        const contents = new Map(
          numbers.map((number) => [String(number), Buffer.from(contentsOf({ volume, number }))]),
        );
        await createFilled(client, volume.name, inodesOf(volume.catalog).first, contents);
        this.#acknowledged.push(...numbers.map((number) => ({ volume, number })));
      } catch (error) {
        if (!(error instanceof ServiceError)) throw error;
        this.#failed += 1;
      }
      await delay(PAUSE_MS);
    }
  }
}

function contentsOf({ volume, number }: Acknowledged): string {
  return `file ${number} of ${volume.name}`;
}

/** Whether a file is there with its contents; while the answer is that servers are away, it asks again. */
async function isThere(cluster: RealCluster, server: string, file: Acknowledged): Promise<boolean> {
  const deadlineMs = performance.now() + READ_MS_MAX;
  for (;;) {
    const answer = await readOf(cluster, server, file);
    if (answer !== 'unavailable') return answer === contentsOf(file);
    if (performance.now() > deadlineMs) return false;
    await delay(PAUSE_MS);
  }
}

/** @returns the contents, `unavailable`, or null if the file is not there */
export async function readOf(
  cluster: RealCluster,
  server: string,
  { volume, number }: Acknowledged,
  limitMs = READ_MS_MAX,
): Promise<string | 'unavailable' | null> {
  try {
    const signal = AbortSignal.timeout(limitMs);
    const answer = await fetch(`${cluster.url(server)}/v1/files/${volume.name}/${number}`, { signal });
    const text = await answer.text();
    if (answer.ok) return text;
    return answer.status === 404 ? null : 'unavailable';
  } catch (error) {
    if (error instanceof DOMException && error.name === 'TimeoutError') return 'unavailable';
    // The connection failed: the server is about to start or to end.
    if (error instanceof TypeError) return 'unavailable';
    throw error;
  }
}
