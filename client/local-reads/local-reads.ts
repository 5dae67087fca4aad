import { releaseMemory } from '../../base/releasable-memory.ts';
import type { World } from '../../base/world.ts';
import {
  decodeLocations,
  type FileLocations,
  HEADER_LOCAL_PROOF,
  LOCATIONS_BYTES_MAX,
  LOCATIONS_VALID_MS,
  type LocalAnswer,
} from '../../wire/locations.ts';
import type { Endpoint } from '../transport/endpoint.ts';
import type { Exchanger, Subject } from '../transport/exchange.ts';
import { readBytes, readJson } from '../transport/response.ts';
import { LocalDisk } from './local-disk.ts';

/** How long reported locations may be used, from the sending of the request; the server keeps them longer. */
const USABLE_MS = LOCATIONS_VALID_MS / 2;
const RETRY_DISK_MS = 10_000;
const RETRY_SERVER_MS = 1_000;
const RETRY_FILE_MS = 50;
/** A disk with more than one miss in this many reads is not used for a while. */
const MISS_WEIGHT = 16;
const MISSES_MAX = 8 * MISS_WEIGHT;

export interface LocatedFile {
  readonly file: number;
  readonly subject: Subject;
  readonly replicas: readonly string[];
  readonly snapshotQuery: string;
}

/** Why bytes were not read at their reported locations: not in time, or they are missing or have another checksum. */
export type Miss = 'late' | 'other';

export interface LocalRange {
  /** @see FileLocations */
  readonly end: number;
  readonly sizeBytes: number;
  /** The state is at least as new as this (monotonic, in milliseconds). */
  readonly sinceMs: number;
  readonly untilMs: number;
  /** @returns bytes from `offset` on, up to `end`; or why they have to be read from a server */
  read(offset: number, length: number): Promise<Uint8Array | Miss>;
}

type KnownServer =
  | { readonly kind: 'asking' }
  | { readonly kind: 'none'; readonly untilMs: number }
  | { readonly kind: 'disk'; readonly disk: LocalDisk; misses: number };

/**
 * Reads from disks of servers on this machine (in HDFS: short-circuit reads): a server reports where bytes are, with
 * all checks of an ordinary read, and the client reads them from its disk. If that fails, the caller reads from a
 * server.
 */
export class LocalReads {
  readonly #world: World;
  readonly #exchanger: Exchanger;
  readonly #servers = new Map<Endpoint, KnownServer>();
  /** When a server may be asked again about a file (monotonic, in milliseconds). */
  readonly #notBefore = new Map<string, number>();
  #closed = false;

  constructor(exchanger: Exchanger) {
    this.#world = exchanger.world;
    this.#exchanger = exchanger;
  }

  /** Asks a server here where bytes of a file are on its disk. @returns null if none may answer reads of it now */
  async locate(located: LocatedFile, offset: number, length: number): Promise<LocalRange | null> {
    const chosen = this.#choose(located);
    if (chosen === null) return null;
    const { endpoint, known } = chosen;
    const { file, subject, snapshotQuery } = located;
    const sentMs = this.#world.nowMs();
    const bytes = Math.min(length, LOCATIONS_BYTES_MAX);
    const outcome = await this.#exchanger.askOnce(
      endpoint,
      subject,
      {
        what: `Cannot find file ${file} on this machine`,
        method: 'GET',
        path: `/v1/data/${file}/locations?offset=${offset}&length=${bytes}${snapshotQuery}`,
        headers: { [HEADER_LOCAL_PROOF]: known.disk.proof },
        files: [file],
        mutation: false,
      },
      async (response) => decodeLocations((await readBytes(response)).bytes),
      { timeoutMs: USABLE_MS },
    );
    if (outcome.kind === 'answered') return this.#range(known, endpoint, outcome.value, sentMs);
    const isTemporary = outcome.error.code === 'not-primary' || outcome.error.code === 'precondition-failed';
    if (isTemporary) this.#pauseFile(located.file, endpoint);
    // Another process may answer there by now, with another secret.
    else this.#closeDisk(endpoint, this.#world.nowMs() + RETRY_SERVER_MS);
    return null;
  }

  close(): void {
    this.#closed = true;
    for (const endpoint of [...this.#servers.keys()]) this.#closeDisk(endpoint, Number.POSITIVE_INFINITY);
  }

  /** @returns the primary, else a replica, whose disk is open here; null if none is: it opens in the background */
  #choose({ file, subject, replicas }: LocatedFile): {
    readonly endpoint: Endpoint;
    readonly known: KnownServer & { readonly kind: 'disk' };
  } | null {
    const nowMs = this.#world.nowMs();
    const { primary } = subject;
    for (const id of primary === null ? replicas : [primary, ...replicas]) {
      const endpoint = this.#exchanger.endpoints.usableById(id, nowMs);
      if (endpoint === null) continue;
      const known = this.#servers.get(endpoint);
      if (known === undefined || (known.kind === 'none' && known.untilMs <= nowMs))
        void this.#openDisk(endpoint);
      else if (known.kind === 'disk' && !this.#isFilePaused(file, endpoint, nowMs))
        return { endpoint, known };
    }
    return null;
  }

  async #openDisk(endpoint: Endpoint): Promise<void> {
    if (this.#closed) return;
    this.#servers.set(endpoint, { kind: 'asking' });
    for (const removed of this.#servers.keys()) {
      if (!this.#exchanger.endpoints.all.includes(removed)) this.#closeDisk(removed, 0);
    }
    const outcome = await this.#exchanger.askOnce(
      endpoint,
      { primary: null },
      { what: 'Cannot ask for the data folder', method: 'GET', path: '/v1/local', mutation: false },
      readJson<LocalAnswer>,
      { timeoutMs: RETRY_DISK_MS },
    );
    const disk = outcome.kind === 'answered' ? await LocalDisk.open(this.#world, outcome.value.folder) : null;
    if (this.#servers.get(endpoint)?.kind !== 'asking') disk?.close();
    else if (disk === null)
      this.#servers.set(endpoint, { kind: 'none', untilMs: this.#world.nowMs() + RETRY_DISK_MS });
    else this.#servers.set(endpoint, { kind: 'disk', disk, misses: 0 });
  }

  #range(
    known: KnownServer & { readonly kind: 'disk' },
    endpoint: Endpoint,
    locations: FileLocations,
    sentMs: number,
  ): LocalRange {
    const untilMs = sentMs + USABLE_MS;
    return {
      end: locations.end,
      sizeBytes: locations.sizeBytes,
      sinceMs: sentMs,
      untilMs,
      read: async (offset, length) => {
        const end = Math.min(offset + length, locations.end);
        if (offset >= end) return new Uint8Array(0);
        const outcome = await beforeDeadline(this.#world, known.disk.read(locations, offset, end), untilMs);
        if (typeof outcome !== 'string') {
          known.misses = Math.max(0, known.misses - 1);
          return outcome;
        }
        known.misses += MISS_WEIGHT;
        if (known.misses > MISSES_MAX && this.#servers.get(endpoint) === known)
          this.#closeDisk(endpoint, this.#world.nowMs() + RETRY_DISK_MS);
        return outcome;
      },
    };
  }

  #isFilePaused(file: number, endpoint: Endpoint, nowMs: number): boolean {
    return (this.#notBefore.get(`${file} ${endpoint.url}`) ?? 0) > nowMs;
  }

  #pauseFile(file: number, endpoint: Endpoint): void {
    const nowMs = this.#world.nowMs();
    for (const [key, untilMs] of this.#notBefore) {
      if (untilMs > nowMs) break;
      this.#notBefore.delete(key);
    }
    this.#notBefore.delete(`${file} ${endpoint.url}`);
    this.#notBefore.set(`${file} ${endpoint.url}`, nowMs + RETRY_FILE_MS);
  }

  /** Closes a server's disk, which is not opened again before `untilMs`; 0 for a server that left the cluster. */
  #closeDisk(endpoint: Endpoint, untilMs: number): void {
    const known = this.#servers.get(endpoint);
    if (known?.kind === 'disk') known.disk.close();
    if (untilMs === 0) this.#servers.delete(endpoint);
    else this.#servers.set(endpoint, { kind: 'none', untilMs });
  }
}

/** Awaits a read until `untilMs`: a disk that does not answer must not delay callers that could ask the server. */
async function beforeDeadline(
  world: World,
  reading: Promise<Buffer | null>,
  untilMs: number,
): Promise<Buffer | Miss> {
  const late = Promise.withResolvers<'late'>();
  const timer = world.after(Math.max(0, untilMs - world.nowMs()), () => late.resolve('late'));
  const first = await Promise.race([reading, late.promise]);
  timer.cancel();
  if (first === 'late') {
    void reading.then((bytes) => bytes !== null && releaseMemory(bytes));
    return 'late';
  }
  if (first === null) return 'other';
  // Bytes read after `untilMs` may be of a later version that happens to have the same checksum.
  if (world.nowMs() <= untilMs) return first;
  releaseMemory(first);
  return 'late';
}
