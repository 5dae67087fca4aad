/**
 * Snapshots during faults of servers. Clients append to one file and create others with contents; snapshots of their
 * volume are made, read at any server and removed. Each snapshot has all records and files that were acknowledged
 * before it was requested, none that was begun after it was acknowledged, and always shows the same.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { Prng } from '../../base/prng.ts';
import type { Command, CommandResults } from '../../wire/catalog-api.ts';
import { type Outcome, type Requests, Session } from './requests.ts';
import { SnapshotBirths } from './snapshot-births.ts';

const VOLUME = 'snapped';
const RECORD_BYTES = 16;
/** The number of snapshots that are kept; older ones are removed. */
const KEPT_MAX = 8;
const PACE_MS = 30;
/** Files are opened one by one before a server loses its power: there must not be too many. */
const BIRTH_PACE_MS = 1_000;
const READ_MS = 1_000;
const LAST_READS_MS = 60_000;

interface Made {
  readonly name: string;
  /** Records that were acknowledged before the snapshot was requested. */
  readonly owed: readonly string[];
  /** Files that were acknowledged before the snapshot was requested. */
  readonly owedFiles: readonly string[];
  readonly ackedMs: number;
  /** What the first read returned: the file with records, and the names and sizes of all others. */
  contents: string | null;
  listing: string | null;
}

export class SnapshotWatch {
  readonly counts = { snapshots: 0, snapshotReads: 0, snapshotsRemoved: 0, filesBorne: 0 };
  readonly #requests: Requests;
  readonly #prng: Prng;
  readonly #commands = new Session();
  readonly #appends = new Session();
  readonly #begunMs = new Map<string, number>();
  readonly #acked: string[] = [];
  readonly #made: Made[] = [];
  readonly #wrong: string[] = [];
  readonly #urls: readonly string[];
  #file = 0;
  #births: SnapshotBirths | null = null;
  #running: Promise<void>[] = [];
  /** The pending operations. */
  readonly #turns = new Set<Promise<void>>();
  /** Closed while no operation may begin. */
  #gate: PromiseWithResolvers<void> | null = null;
  #ended = false;

  constructor(requests: Requests, urls: readonly string[], seed: number) {
    this.#requests = requests;
    this.#urls = urls;
    this.#prng = new Prng(seed * 31 + 1);
  }

  async start(replicas: number): Promise<void> {
    const created = await this.#command({ kind: 'volume-create', name: VOLUME, replicas, objectBytes: 4096 });
    if (created.answer === null) throw new Error('Cannot make the volume of the snapshots');
    const { volume } = JSON.parse(created.answer.bytes.toString('utf8')) as CommandResults['volume-create'];
    this.#births = new SnapshotBirths(this.#urls, volume.root);
    const place = { volume: VOLUME, path: '/log' };
    const made = await this.#command({
      ...{ kind: 'create-file', place, mode: 0o644, uid: 0, gid: 0, exclusive: true },
    });
    if (made.answer === null) throw new Error('Cannot make the file of the snapshots');
    const { attributes } = JSON.parse(made.answer.bytes.toString('utf8')) as CommandResults['create-file'];
    this.#file = attributes.inode;
    const loops = [
      { turn: () => this.#append(), paceMs: PACE_MS },
      { turn: () => this.#snapshot(), paceMs: PACE_MS },
      { turn: () => this.#look(), paceMs: PACE_MS },
      { turn: () => this.#look(), paceMs: PACE_MS },
      { turn: async () => this.#births?.bear(), paceMs: BIRTH_PACE_MS },
    ];
    this.#running = loops.map(async ({ turn, paceMs }) => {
      while (!this.#ended) {
        await this.#gate?.promise;
        const work = turn();
        this.#turns.add(work);
        await work.finally(() => this.#turns.delete(work));
        await delay(this.#prng.integer(1, 2 * paceMs));
      }
    });
    for (const one of this.#running) one.catch(() => undefined);
  }

  /** Files that must be flushed, and current on all replicas, like all others. */
  get files(): readonly number[] {
    return this.#file === 0 ? [] : [this.#file, ...(this.#births?.inodes ?? [])];
  }

  /** Resolves once no operation is pending. */
  async pause(): Promise<void> {
    this.#gate = Promise.withResolvers<void>();
    await Promise.allSettled(this.#turns);
  }

  resume(): void {
    this.#gate?.resolve();
    this.#gate = null;
  }

  async stop(): Promise<void> {
    this.#ended = true;
    this.resume();
    await Promise.all(this.#running);
    await this.#births?.close();
  }

  /** Reads each snapshot at each server once more. @returns errors, as text */
  async end(): Promise<readonly string[]> {
    await this.stop();
    const untilMs = performance.now() + LAST_READS_MS;
    for (const made of this.#made) {
      for (const server of this.#requests.ids) {
        while (!(await this.#read(made, server))) {
          if (performance.now() > untilMs)
            return [...this.#wrong, `${server} does not tell of snapshot ${made.name}`];
          await delay(PACE_MS);
        }
      }
    }
    this.counts.filesBorne = this.#births?.born.length ?? 0;
    if (this.counts.filesBorne === 0) return [...this.#wrong, 'no file was borne for snapshots'];
    if (this.#acked.length === 0) return [...this.#wrong, 'no record was appended for snapshots'];
    return this.#wrong;
  }

  #command(command: Command): Promise<Outcome> {
    const body = JSON.stringify({ session: this.#commands.session, number: this.#commands.next(), command });
    return this.#requests.change({ method: 'POST', path: '/v1/catalog/commands', body });
  }

  async #append(): Promise<void> {
    const record = String(this.#begunMs.size)
      .padStart(RECORD_BYTES - 1, '0')
      .concat('\n');
    this.#begunMs.set(record, performance.now());
    const { session } = this.#appends;
    const number = this.#appends.next();
    const path = `/v1/data/${this.#file}?offset=append&session=${session}&number=${number}&since=0&answered=${number - 1}`;
    const { status } = await this.#requests.change({ method: 'PUT', path, body: Buffer.from(record) });
    if (status === 'ok') this.#acked.push(record);
  }

  async #snapshot(): Promise<void> {
    const name = `s${this.counts.snapshots}-${this.#begunMs.size}`;
    const owed = [...this.#acked];
    const owedFiles = this.#births?.born ?? [];
    const { status } = await this.#command({ kind: 'snapshot-create', volume: VOLUME, name });
    if (status !== 'ok') return;
    this.counts.snapshots++;
    this.#made.push({ name, owed, owedFiles, ackedMs: performance.now(), contents: null, listing: null });
    if (this.#made.length <= KEPT_MAX) return;
    const [old] = this.#made.splice(this.#prng.integer(0, KEPT_MAX - 1), 1);
    if (old === undefined) return;
    await this.#command({ kind: 'snapshot-remove', volume: VOLUME, name: old.name });
    this.counts.snapshotsRemoved++;
  }

  async #look(): Promise<void> {
    if (this.#made.length > 0)
      await this.#read(this.#prng.pick(this.#made), this.#prng.pick(this.#requests.ids));
  }

  /** @returns whether the server returned the snapshot */
  async #read(made: Made, server: string): Promise<boolean> {
    const text = await this.#textOf(made, server, 'log');
    if (text === null) return false;
    this.counts.snapshotReads++;
    made.contents ??= this.#judged(made, text);
    if (made.contents !== text) this.#wrong.push(`snapshot ${made.name} has changed, at ${server}`);
    return this.#readFiles(made, server);
  }

  async #readFiles(made: Made, server: string): Promise<boolean> {
    const text = await this.#textOf(made, server, '');
    if (text === null) return false;
    const { entries } = JSON.parse(text) as { entries: readonly { name: string; size: number }[] };
    const others = entries.filter(({ name }) => name !== 'log');
    const listing = others.map(({ name, size }) => `${name} ${size}`).join();
    if (made.listing === null) {
      made.listing = listing;
      const names = new Set(others.map(({ name }) => name));
      for (const fault of this.#births?.faults(names, made.owedFiles, made.ackedMs) ?? [])
        this.#wrong.push(`snapshot ${made.name} ${fault}`);
    }
    if (made.listing !== listing)
      this.#wrong.push(`snapshot ${made.name} has other files by now, at ${server}`);
    if (others.length === 0) return true;
    const { name } = this.#prng.pick(others);
    const contents = await this.#textOf(made, server, name);
    if (contents !== null && contents !== SnapshotBirths.contentsOf(name))
      this.#wrong.push(`snapshot ${made.name} has something else in ${name}, at ${server}`);
    return contents !== null;
  }

  /** @returns null if the server does not answer */
  async #textOf({ name: snapshot }: Made, server: string, name: string): Promise<string | null> {
    const path = `/v1/files/${VOLUME}@${snapshot}/${name}`;
    const answer = await this.#requests.ask(server, { method: 'GET', path }, READ_MS);
    return answer.kind === 'answer' && answer.code === null ? answer.bytes.toString('latin1') : null;
  }

  #judged({ name, owed, ackedMs }: Made, text: string): string {
    const records = new Set(text.match(/.{15}\n/gs) ?? []);
    const missing = owed.find((record) => !records.has(record));
    if (missing !== undefined)
      this.#wrong.push(`snapshot ${name} lacks ${missing.trim()}, which was acknowledged before it`);
    const later = [...records].find((record) => (this.#begunMs.get(record) ?? Infinity) > ackedMs);
    if (later !== undefined)
      this.#wrong.push(`snapshot ${name} has ${later.trim()}, which began after it was acknowledged`);
    return text;
  }
}
