/**
 * Snapshots while servers are broken: one file is appended to, snapshots of its volume are made, read at any server and removed. Each has
 * every record that was acknowledged before it was asked for, none that was begun after it was acknowledged, and shows the same for ever.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { Prng } from '../../base/prng.ts';
import type { Command, CommandResults } from '../../wire/catalog-api.ts';
import { type Outcome, type Requests, Session } from './requests.ts';

const VOLUME = 'snapped';
const RECORD_BYTES = 16;
/** So many stay; older ones are removed. */
const KEPT_MAX = 8;
const PACE_MS = 30;
const READ_MS = 1_000;
const LAST_READS_MS = 60_000;

interface Made {
  readonly name: string;
  /** Records that were acknowledged before it was asked for. */
  readonly owed: readonly string[];
  readonly ackedMs: number;
  /** As it was read first. */
  contents: string | null;
}

export class SnapshotWatch {
  readonly counts = { snapshots: 0, snapshotReads: 0, snapshotsRemoved: 0 };
  readonly #requests: Requests;
  readonly #prng: Prng;
  readonly #commands = new Session();
  readonly #appends = new Session();
  readonly #begunMs = new Map<string, number>();
  readonly #acked: string[] = [];
  readonly #made: Made[] = [];
  readonly #wrong: string[] = [];
  #file = 0;
  #running: Promise<void>[] = [];
  /** What is under way now. */
  readonly #turns = new Set<Promise<void>>();
  /** Closed while nobody is to do anything. */
  #gate: PromiseWithResolvers<void> | null = null;
  #ended = false;

  constructor(requests: Requests, seed: number) {
    this.#requests = requests;
    this.#prng = new Prng(seed * 31 + 1);
  }

  async start(replicas: number): Promise<void> {
    await this.#command({ kind: 'volume-create', name: VOLUME, replicas, objectBytes: 4096 });
    const place = { volume: VOLUME, path: '/log' };
    const made = await this.#command({
      ...{ kind: 'create-file', place, mode: 0o644, uid: 0, gid: 0, exclusive: true },
    });
    if (made.answer === null) throw new Error('Cannot make the file of the snapshots');
    const { attributes } = JSON.parse(made.answer.bytes.toString('utf8')) as CommandResults['create-file'];
    this.#file = attributes.inode;
    const loops = [() => this.#append(), () => this.#snapshot(), () => this.#look(), () => this.#look()];
    this.#running = loops.map(async (turn) => {
      while (!this.#ended) {
        await this.#gate?.promise;
        const work = turn();
        this.#turns.add(work);
        await work.finally(() => this.#turns.delete(work));
        await delay(this.#prng.integer(1, 2 * PACE_MS));
      }
    });
    for (const one of this.#running) one.catch(() => undefined);
  }

  /** Files to be flushed, and to be whole, like all others. */
  get files(): readonly number[] {
    return this.#file === 0 ? [] : [this.#file];
  }

  /** Resolves when nothing is under way any more. */
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
  }

  /** Reads each at every server once more. @returns what was wrong, in words */
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
    const { status } = await this.#command({ kind: 'snapshot-create', volume: VOLUME, name });
    if (status !== 'ok') return;
    this.counts.snapshots++;
    this.#made.push({ name, owed, ackedMs: performance.now(), contents: null });
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

  /** @returns whether the server told what the snapshot shows */
  async #read(made: Made, server: string): Promise<boolean> {
    const path = `/v1/files/${VOLUME}@${made.name}/log`;
    const answer = await this.#requests.ask(server, { method: 'GET', path }, READ_MS);
    if (answer.kind !== 'answer' || answer.code !== null) return false;
    this.counts.snapshotReads++;
    const text = answer.bytes.toString('latin1');
    made.contents ??= this.#judged(made, text);
    if (made.contents !== text) this.#wrong.push(`snapshot ${made.name} has changed, at ${server}`);
    return true;
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
