import { giveBack } from '../../base/lent-memory.ts';
import type { World } from '../../base/world.ts';
import {
  decodeLocations,
  type FileLocations,
  HEADER_LOCAL_PROOF,
  LOCATIONS_BYTES_MAX,
  LOCATIONS_HELD_MS,
  type LocalAnswer,
} from '../../wire/locations.ts';
import type { Endpoint } from '../endpoint.ts';
import type { Exchanger, Subject } from '../exchange.ts';
import { readBytes, readJson } from '../response.ts';
import { LocalDisk } from './local-disk.ts';

/** From when it was asked where bytes are, they may be read there for so long: the server holds them for longer. */
const USABLE_MS = LOCATIONS_HELD_MS / 2;
/** One that said that its disk is not to be read, or whose disk cannot be, is asked again after this long. */
const AGAIN_MS = 10_000;
/** One that has lost it, perhaps with its process, after this long. */
const AGAIN_SOON_MS = 1_000;
/** A server that may not answer at once is asked again after this long. */
const NOT_NOW_MS = 50;
/** Of so many reads on one disk that one more found something else than was told, it is left alone for a while: each miss counts as many good ones. */
const MISS_WEIGHT = 16;
const MISSES_MAX = 8 * MISS_WEIGHT;

/** Where the bytes of a file are that somebody is going to read. */
export interface LocatedFile {
  readonly file: number;
  readonly subject: Subject;
  /** Ids of the servers that hold it, as far as is known. */
  readonly replicas: readonly string[];
  /** Of a URL's query, where a snapshot is read. */
  readonly shown: string;
}

/** Why bytes were not found where they were told to be. */
export type Miss = 'late' | 'other';

/** Bytes of a file that are on this machine, all of one state. */
export interface LocalRange {
  /** @see FileLocations */
  readonly end: number;
  readonly sizeBytes: number;
  /** They were so not before this (monotonic, in milliseconds). */
  readonly sinceMs: number;
  /** Until when they can be read here. */
  readonly untilMs: number;
  /** @returns bytes from `offset` on, up to `end` at the most; or why they have to be read in the ordinary way */
  read(offset: number, length: number): Promise<Uint8Array | Miss>;
}

/** What is known of the disk of one server. */
type Known =
  | { readonly kind: 'asking' }
  | { readonly kind: 'none'; readonly untilMs: number }
  | { readonly kind: 'disk'; readonly disk: LocalDisk; misses: number };

/**
 * Reads past servers that are on this machine (what HDFS calls short-circuit reads): a server is asked where bytes are, with all that it takes
 * to be sent them, and they are read from its disk. Wherever that does not work, they are to be read in the ordinary way.
 */
export class LocalReads {
  readonly #world: World;
  readonly #exchanger: Exchanger;
  readonly #known = new Map<Endpoint, Known>();
  /** Files of which a server may not tell anything before a moment (monotonic, in milliseconds). */
  readonly #notBefore = new Map<string, number>();
  #closed = false;

  constructor(exchanger: Exchanger) {
    this.#world = exchanger.world;
    this.#exchanger = exchanger;
  }

  /** @returns null where no server on this machine may answer reads of the file now */
  async locate(located: LocatedFile, offset: number, length: number): Promise<LocalRange | null> {
    const chosen = this.#choose(located);
    if (chosen === null) return null;
    const { endpoint, known } = chosen;
    const { file, subject, shown } = located;
    const sentMs = this.#world.nowMs();
    const bytes = Math.min(length, LOCATIONS_BYTES_MAX);
    const outcome = await this.#exchanger.askOnce(
      endpoint,
      subject,
      {
        what: `Cannot find file ${file} on this machine`,
        method: 'GET',
        path: `/v1/data/${file}/locations?offset=${offset}&length=${bytes}${shown}`,
        headers: { [HEADER_LOCAL_PROOF]: known.disk.proof },
        files: [file],
        mutation: false,
      },
      async (response) => decodeLocations((await readBytes(response)).bytes),
      { timeoutMs: USABLE_MS },
    );
    if (outcome.kind === 'answered') return this.#range(known, endpoint, outcome.value, sentMs);
    const isForNow = outcome.error.code === 'not-primary' || outcome.error.code === 'precondition-failed';
    if (isForNow) this.#leaveAlone(located.file, endpoint);
    // Another process may answer there by now, with another secret.
    else this.#lose(endpoint, this.#world.nowMs() + AGAIN_SOON_MS);
    return null;
  }

  close(): void {
    this.#closed = true;
    for (const endpoint of [...this.#known.keys()]) this.#lose(endpoint, Number.POSITIVE_INFINITY);
  }

  /** The primary if it is here, else any that holds the file. */
  #choose({ file, subject, replicas }: LocatedFile): {
    readonly endpoint: Endpoint;
    readonly known: Known & { readonly kind: 'disk' };
  } | null {
    const nowMs = this.#world.nowMs();
    const { primary } = subject;
    for (const id of primary === null ? replicas : [primary, ...replicas]) {
      const endpoint = this.#exchanger.endpoints.named(id, nowMs);
      if (endpoint === null) continue;
      const known = this.#known.get(endpoint);
      if (known === undefined || (known.kind === 'none' && known.untilMs <= nowMs)) void this.#ask(endpoint);
      else if (known.kind === 'disk' && !this.#isLeftAlone(file, endpoint, nowMs)) return { endpoint, known };
    }
    return null;
  }

  /** Finds out whether the server's disk can be read here. */
  async #ask(endpoint: Endpoint): Promise<void> {
    if (this.#closed) return;
    this.#known.set(endpoint, { kind: 'asking' });
    for (const gone of this.#known.keys()) {
      if (!this.#exchanger.endpoints.all.includes(gone)) this.#lose(gone, 0);
    }
    const outcome = await this.#exchanger.askOnce(
      endpoint,
      { primary: null },
      { what: 'Cannot ask for the data folder', method: 'GET', path: '/v1/local', mutation: false },
      readJson<LocalAnswer>,
      { timeoutMs: AGAIN_MS },
    );
    const disk = outcome.kind === 'answered' ? await LocalDisk.open(this.#world, outcome.value.folder) : null;
    if (this.#known.get(endpoint)?.kind !== 'asking') disk?.close();
    else if (disk === null)
      this.#known.set(endpoint, { kind: 'none', untilMs: this.#world.nowMs() + AGAIN_MS });
    else this.#known.set(endpoint, { kind: 'disk', disk, misses: 0 });
  }

  #range(
    known: Known & { readonly kind: 'disk' },
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
        const outcome = await inTime(this.#world, known.disk.read(locations, offset, end), untilMs);
        if (typeof outcome !== 'string') {
          known.misses = Math.max(0, known.misses - 1);
          return outcome;
        }
        known.misses += MISS_WEIGHT;
        if (known.misses > MISSES_MAX && this.#known.get(endpoint) === known)
          this.#lose(endpoint, this.#world.nowMs() + AGAIN_MS);
        return outcome;
      },
    };
  }

  #isLeftAlone(file: number, endpoint: Endpoint, nowMs: number): boolean {
    return (this.#notBefore.get(`${file} ${endpoint.url}`) ?? 0) > nowMs;
  }

  #leaveAlone(file: number, endpoint: Endpoint): void {
    const nowMs = this.#world.nowMs();
    for (const [key, untilMs] of this.#notBefore) {
      if (untilMs > nowMs) break;
      this.#notBefore.delete(key);
    }
    this.#notBefore.delete(`${file} ${endpoint.url}`);
    this.#notBefore.set(`${file} ${endpoint.url}`, nowMs + NOT_NOW_MS);
  }

  #lose(endpoint: Endpoint, untilMs: number): void {
    const known = this.#known.get(endpoint);
    if (known?.kind === 'disk') known.disk.close();
    if (untilMs === 0) this.#known.delete(endpoint);
    else this.#known.set(endpoint, { kind: 'none', untilMs });
  }
}

/** A disk that does not answer holds up nobody who could ask the server. */
async function inTime(
  world: World,
  reading: Promise<Buffer | null>,
  untilMs: number,
): Promise<Buffer | Miss> {
  const late = Promise.withResolvers<'late'>();
  const timer = world.after(Math.max(0, untilMs - world.nowMs()), () => late.resolve('late'));
  const first = await Promise.race([reading, late.promise]);
  timer.cancel();
  if (first === 'late') {
    void reading.then((bytes) => bytes !== null && giveBack(bytes));
    return 'late';
  }
  if (first === null) return 'other';
  // What was read after that may be of a later version that happens to have the same checksum.
  if (world.nowMs() <= untilMs) return first;
  giveBack(first);
  return 'late';
}
