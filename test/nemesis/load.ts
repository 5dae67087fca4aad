import { setTimeout as delay } from 'node:timers/promises';
import { Prng } from '../../base/prng.ts';
import { NemesisClient } from './client.ts';
import { FILE_HIGH, FILE_LOW, type Holder, type KeyKind, Keys, OBJECTS_PER_FILE } from './keys.ts';
import type { Recorder } from './recorder.ts';
import type { Requests } from './requests.ts';

const HOLDERS: readonly KeyKind[] = [
  ...(['object', 'object', 'list', 'list', 'file', 'file'] as const),
  ...(['entry', 'entry', 'entry', 'entry'] as const),
];
/** One writing client for each of these kinds; each server also has two reading clients. */
const WRITERS: readonly KeyKind[] = [
  'object',
  'object',
  'object',
  'list',
  'list',
  'file',
  'file',
  'entry',
  'entry',
];
/** A read waits for its server this long: in a partition a longer wait would leave few reads. */
const READ_MS = 1_000;
const LAST_READ_MS = 8_000;
/** How long each server has at the end to return all keys. */
const LAST_READS_MS = 120_000;
const LAST_READERS = 8;
/** A client waits this long after a refusal. */
const TROUBLE_PAUSE_MS = 200;

export interface LoadOptions {
  readonly requests: Requests;
  readonly recorder: Recorder;
  readonly seed: number;
  readonly paceMs: number;
  readonly replicas: number;
}

/** Clients that make one operation after the other, all at the same time, until `end`. */
export class Load {
  readonly keys: Keys;
  readonly #options: LoadOptions;
  readonly #maker: NemesisClient;
  readonly #running: Promise<void>[] = [];
  readonly #resting = new Set<NemesisClient>();
  #entries = 0;
  #ended = false;
  /** While it is set, clients wait; resolved by `resume`. */
  #gate: PromiseWithResolvers<void> | null = null;
  #allRest: PromiseWithResolvers<void> | null = null;
  /** The value that each name had in the last answer, for comparisons. */
  readonly #seen = new Map<number, string | null>();

  constructor(options: LoadOptions) {
    this.#options = options;
    this.#maker = this.#client('maker', -1);
    this.keys = new Keys(HOLDERS, (kind) =>
      kind === 'entry' ? Promise.resolve(++this.#entries) : this.#maker.createFile(),
    );
  }

  #client(name: string, number: number, readMs = READ_MS): NemesisClient {
    const { seed, requests, recorder } = this.#options;
    return new NemesisClient(name, new Prng(seed * 1_000 + number), requests, recorder, readMs);
  }

  async start(): Promise<void> {
    await this.#maker.createVolume(this.#options.replicas);
    await this.keys.fill();
    const { ids } = this.#options.requests;
    for (const [number, server] of [...ids, ...ids].entries()) {
      const client = this.#client(`r${number + 1}`, number);
      this.#running.push(this.#run(client, () => this.#readSomething(client, server)));
    }
    for (const [number, kind] of WRITERS.entries()) {
      const client = this.#client(`w${number + 1}`, 100 + number);
      this.#running.push(this.#run(client, () => this.#writeSomething(client, kind)));
    }
    // The caller of `end` gets the error.
    for (const one of this.#running) one.catch(() => undefined);
  }

  async #run(client: NemesisClient, turn: () => Promise<void>): Promise<void> {
    while (!this.#ended) {
      if (this.#gate !== null) {
        this.#resting.add(client);
        this.#lookWhoRests();
        await this.#gate.promise;
        this.#resting.delete(client);
        continue;
      }
      await turn();
      await delay(client.prng.integer(1, 2 * this.#options.paceMs));
    }
  }

  #lookWhoRests(): void {
    if (this.#resting.size === this.#running.length) this.#allRest?.resolve();
  }

  /** Resolves once no operation is pending; none begins until `resume`. */
  async pause(): Promise<void> {
    this.#gate = Promise.withResolvers();
    this.#allRest = Promise.withResolvers();
    await this.#allRest.promise;
  }

  resume(): void {
    const gate = this.#gate;
    this.#gate = null;
    gate?.resolve();
  }

  /** Resolves once all clients have ended. @throws the error of one that failed */
  async end(): Promise<void> {
    this.#ended = true;
    this.keys.end();
    await Promise.all(this.#running);
  }

  async #readSomething(client: NemesisClient, server: string): Promise<void> {
    const { prng } = client;
    const holder = prng.pick(this.keys.of(prng.pick(HOLDERS)));
    if (!(await this.#read(client, server, holder))) await delay(TROUBLE_PAUSE_MS);
  }

  async #read(client: NemesisClient, server: string, holder: Holder): Promise<boolean> {
    const { prng } = client;
    const { number } = holder;
    switch (holder.kind) {
      case 'object':
        return client.readObject(server, number, prng.integer(0, OBJECTS_PER_FILE - 1));
      case 'list':
        return client.readList(server, number);
      case 'file': {
        if (prng.chance(0.3)) return client.size(server, number);
        const off = prng.integer(FILE_LOW, FILE_HIGH);
        return client.pread(server, number, off, prng.integer(1, FILE_HIGH - FILE_LOW));
      }
      case 'entry': {
        const found = await client.readEntry(server, number);
        if (found !== undefined) this.#seen.set(number, found);
        return found !== undefined;
      }
    }
  }

  async #writeSomething(client: NemesisClient, kind: KeyKind): Promise<void> {
    const holders = this.keys.writable(kind);
    if (holders.length === 0) return delay(TROUBLE_PAUSE_MS);
    const holder = client.prng.pick(holders);
    const status = await this.#write(client, holder);
    this.keys.changed(holder, status === 'unknown');
    if (status !== 'ok') await delay(TROUBLE_PAUSE_MS);
  }

  #write(client: NemesisClient, { kind, number }: Holder) {
    const { prng } = client;
    switch (kind) {
      case 'object':
        return client.writeObject(number, prng.integer(0, OBJECTS_PER_FILE - 1));
      case 'list':
        return client.append(number);
      case 'file': {
        const turn = prng.integer(0, 4);
        if (turn <= 1) return client.pwrite(number, prng.integer(FILE_LOW, FILE_HIGH));
        if (turn <= 3) return client.fappend(number);
        return client.truncate(number, prng.chance(0.1) ? 0 : prng.integer(FILE_LOW, FILE_HIGH));
      }
      case 'entry': {
        const turn = prng.integer(0, 3);
        if (turn === 0) return client.writeEntry(number);
        if (turn === 1) return client.deleteEntry(number);
        return client.casEntry(number, prng.chance(0.3) ? null : (this.#seen.get(number) ?? null));
      }
    }
  }

  /**
   * Reads each key at each server, after all faults.
   * @returns keys that a server did not return in time
   */
  async lastReads(): Promise<readonly string[]> {
    const untold: string[] = [];
    const deadlineMs = performance.now() + LAST_READS_MS;
    const todo = this.keys.all.flatMap((holder) =>
      this.#options.requests.ids.map((server) => ({ holder, server })),
    );
    const work = todo.values();
    const readers = Array.from({ length: LAST_READERS }, async (_, number) => {
      const client = this.#client(`${LAST}${number + 1}`, 200 + number, LAST_READ_MS);
      for (const { holder, server } of work) {
        for (const read of wholeOf(client, server, holder)) {
          while (!(await read())) {
            if (performance.now() > deadlineMs) {
              untold.push(`${holder.kind} ${holder.number} at ${server}`);
              break;
            }
            await delay(100);
          }
        }
      }
    });
    await Promise.all(readers);
    return untold;
  }
}

/** The prefix of the names of clients that make the last reads. */
export const LAST = 'last';

function wholeOf(client: NemesisClient, server: string, { kind, number }: Holder) {
  switch (kind) {
    case 'object':
      return Array.from(
        { length: OBJECTS_PER_FILE },
        (_, index) => () => client.readObject(server, number, index),
      );
    case 'list':
      return [() => client.readList(server, number)];
    case 'file':
      return [
        () => client.size(server, number),
        () => client.pread(server, number, FILE_LOW, 3 * (FILE_HIGH - FILE_LOW)),
      ];
    case 'entry':
      return [async () => (await client.readEntry(server, number)) !== undefined];
  }
}
