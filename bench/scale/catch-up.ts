import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { assert } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import type { Incarnation, ServerId } from '../../base/ids.ts';
import { outcomeResult } from '../../catalog/sessions.ts';
import type { Epoch } from '../../replica/epoch.ts';
import { CatalogSubject } from '../../server/catalog/catalog-subject.ts';
import type { CallSource } from '../../server/drivers/subject.ts';
import { CatalogStore } from '../../server/storage/catalog-store.ts';
import { damageByThread } from '../../server/storage/database-checker.ts';
import type { Command, CommandResults } from '../../wire/catalog-api.ts';
import { systemWorld } from '../../world/system-world.ts';
import { SERVERS } from './filled-catalog.ts';

const EPOCH: Epoch = { counter: 1, server: 's1' as ServerId, incarnation: 1 as Incarnation };
const OPTIONS = {
  world: systemWorld,
  view: { number: 1, members: SERVERS },
  checkDatabase: damageByThread,
};
const OBJECT_BYTES = 131_072;
const FILES_PER_COMMAND = 100;
const FILES_PER_DIRECTORY = 1_000;
const OWNER = 1;

export interface CatchUpFigures {
  readonly way: 'the log' | 'pages that differ' | 'the whole database';
  readonly bytes: number;
  /** Of both replicas. */
  readonly processorMs: number;
  readonly longestTickMs: number;
  readonly fetches: number;
}

export interface CatchUpReport {
  readonly files: number;
  readonly batches: number;
  readonly databaseBytes: number;
  readonly figures: readonly CatchUpFigures[];
}

/**
 * A member of the catalog that has missed batches of one created file each catches up: by the log, by the pages that
 * differ, and by the whole database, as all did that lagged by 1,000 batches or 16 MiB.
 */
export async function measureCatchUp(files: number, batches: number): Promise<CatchUpReport> {
  const base = fs.mkdtempSync(path.join(os.tmpdir(), 'leasehold-catch-up-'));
  try {
    const [before, after] = [path.join(base, 'before'), path.join(base, 'after')];
    const filled = await Replica.open(before);
    await filled.fill(files);
    await filled.close();
    fs.cpSync(before, after, { recursive: true });
    const source = await Replica.open(after);
    await source.createEach(batches);
    await source.close();
    const figures: CatchUpFigures[] = [];
    for (const way of ['the log', 'pages that differ', 'the whole database'] as const)
      figures.push(await catchUp(base, way));
    const databaseBytes = fs.statSync(path.join(after, 'catalog.db')).size;
    return { files, batches, databaseBytes, figures };
  } finally {
    fs.rmSync(base, { recursive: true });
  }
}

async function catchUp(base: string, way: CatchUpFigures['way']): Promise<CatchUpFigures> {
  const folders = ['before', 'after'].map((name) => {
    const copy = path.join(base, `${name} for ${way}`);
    fs.cpSync(path.join(base, name), copy, { recursive: true });
    return copy;
  });
  const [member, source] = await Promise.all([
    Replica.open(folders[0] as string),
    Replica.open(folders[1] as string),
  ]);
  let bytes = 0;
  const ask: CallSource = async (method, payload) => {
    // As the log is when it begins later, and as a server of an earlier release answers.
    if (method.startsWith('tail') && way !== 'the log') return new Uint8Array(0);
    if (method === 'snapshot-compare' && way === 'the whole database')
      throw new ServiceError('bad-request', 'Unknown method');
    const answer = await source.subject.serve(method, payload);
    bytes += payload.length + answer.length;
    return answer;
  };
  const ticks = monitorEventLoopDelay({ resolution: 1 });
  ticks.enable();
  const begun = process.cpuUsage();
  const fetches = await member.take(ask);
  const { user, system } = process.cpuUsage(begun);
  ticks.disable();
  assert(member.store.record().seq === source.store.record().seq, 'The member is current');
  await member.close();
  await source.close();
  for (const folder of folders) fs.rmSync(folder, { recursive: true });
  return { way, bytes, processorMs: (user + system) / 1000, longestTickMs: ticks.max / 1e6, fetches };
}

/** A replica of the catalog that is its own primary, or takes another one's state. */
class Replica {
  readonly store: CatalogStore;
  readonly subject: CatalogSubject;
  #session = 0;
  #parent = 0;
  #files = 0;
  #reserved: number[] = [];

  private constructor(store: CatalogStore) {
    this.store = store;
    this.subject = new CatalogSubject(store);
  }

  static async open(folder: string): Promise<Replica> {
    fs.mkdirSync(folder, { recursive: true });
    return new Replica(await CatalogStore.open({ ...OPTIONS, folder }));
  }

  close(): Promise<void> {
    return this.store.close();
  }

  async fill(files: number): Promise<void> {
    await this.store.promise(EPOCH);
    await this.store.install(EPOCH, 0, null);
    await this.#commit({ kind: 'volume-create', name: 'main', replicas: 3, objectBytes: OBJECT_BYTES });
    while (this.#files < files) await this.#create('f', FILES_PER_COMMAND);
  }

  /** Creates one file in each batch. */
  async createEach(batches: number): Promise<void> {
    const { seq } = this.store.record();
    this.#session = seq;
    const untilSeq = seq + batches;
    while (this.store.record().seq < untilSeq) await this.#create('g', 1);
  }

  async #create(prefix: string, count: number): Promise<void> {
    if (this.#files % FILES_PER_DIRECTORY === 0) {
      const place = { volume: 'main', path: `/${prefix}${this.#files}` };
      const made = await this.#commit({ kind: 'make-directory', place, mode: 0o755, uid: 0, gid: 0 });
      this.#parent = made.attributes.inode;
    }
    if (this.#reserved.length < count) {
      const { first } = await this.#commit({
        ...{ kind: 'reserve-inodes', owner: OWNER, count: FILES_PER_COMMAND, members: [SERVERS] },
      });
      this.#reserved = Array.from({ length: FILES_PER_COMMAND }, (_, index) => first + index);
    }
    const files = this.#reserved.splice(0, count).map((inode, index) => ({
      ...{ parent: this.#parent, name: `a file with number ${this.#files + index}`, inode },
      ...{ mode: 0o644, uid: 0, gid: 0, sizeBytes: 200, contents: { epoch: 1, seq: 1 } },
    }));
    this.#files += count;
    await this.#commit({ kind: 'bear', owner: OWNER, replicas: SERVERS, objectBytes: OBJECT_BYTES, files });
  }

  async #commit<Kind extends Command['kind']>(
    command: Extract<Command, { kind: Kind }> & { kind: Kind },
  ): Promise<CommandResults[Kind]> {
    await this.store.ready();
    this.store.begin();
    const nowNs = BigInt(Date.now()) * 1_000_000n;
    this.#session += 1;
    const requests = [{ session: this.#session, number: 1, command }];
    const { outcomes } = this.store.execute(requests, { nowNs, placement: () => SERVERS });
    await this.store.finish(EPOCH, this.store.record().seq + 1);
    const [outcome] = outcomes;
    assert(outcome !== undefined, 'A command has an outcome');
    return outcomeResult(outcome) as CommandResults[Kind];
  }

  /** Fetches another replica's state. @returns how many fetches it took */
  async take(ask: CallSource): Promise<number> {
    for (let fetches = 1; ; fetches++) {
      const { position, isPart } = await this.subject.fetch(ask);
      if (isPart === true) await this.subject.installPart(position);
      else {
        await this.subject.install(EPOCH, position.seq, new Uint8Array(0), true);
        return fetches;
      }
    }
  }
}

if (import.meta.main) {
  const [files = 300_000, batches = 20_000] = process.argv.slice(2).map(Number);
  const { databaseBytes, figures } = await measureCatchUp(files, batches);
  const mib = (bytes: number): string => (bytes / 2 ** 20).toFixed(1);
  console.log(`${files} files, ${mib(databaseBytes)} MiB; missed: ${batches} batches of one file each`);
  console.log(
    '| by | MiB transferred | processor, ms | longest tick, ms | fetches |\n| --- | --- | --- | --- | --- |',
  );
  for (const { way, bytes, processorMs, longestTickMs, fetches } of figures)
    console.log(
      `| ${way} | ${mib(bytes)} | ${processorMs.toFixed(0)} | ${longestTickMs.toFixed(0)} | ${fetches} |`,
    );
}
