/**
 * Snapshots while their volume is written. One writer changes a file, creates a name, and changes another file, each
 * after the one before was acknowledged: a snapshot must show a moment of that order. It always shows the same while
 * it exists, and nothing after its removal.
 */
import { ServiceError } from '../../../../base/errors.ts';
import { type RestoreReport, restore } from '../../../../client/backup/restore.ts';
import { backup, emptyReport } from '../../../../client/backup/volume-backup.ts';
import type { ClusterClient } from '../../../../client/cluster/cluster-client.ts';
import type { FileHandle } from '../../../../client/cluster/file-handle.ts';
import type { ClientProgram } from '../program.ts';
import type { Run } from '../run.ts';
import type { Workload } from '../workload.ts';
import { CALL, createFile, perRun, ROOT_OWNS, textOf, turns } from './parts.ts';

const VOLUME = 'snapped';
const KEPT_MAX = 4;
/** The longest pause of a writer after each turn. */
const PAUSE_MS = 300;
/** Between two reads of snapshots. */
const THINK_MS_MAX = 800;
/** The number of series that are read of each snapshot at the end. */
const SERIES_LAST = 3;
const READ_BYTES = 4_096;
const SNAPSHOT = { timeoutMs: 15_000 } as const;
/** The time limit of the reads at the end. */
const LAST = { timeoutMs: 60_000 } as const;

/** When it was begun and acknowledged, in true time; `ackedNs` is null if its outcome is not known. */
interface Step {
  readonly begunNs: number;
  ackedNs: number | null;
}

/** Two files and a directory that one writer changes in turn: file `a`, a name in the directory, file `b`. */
interface Series {
  readonly id: string;
  /** Steps 3n, 3n + 1 and 3n + 2 write n to `a`, create the name n, and write n to `b`. */
  readonly steps: Step[];
}

/** What a snapshot shows of one series; null if it was made before the series. */
interface Shown {
  readonly a: number;
  readonly names: number;
  readonly b: number;
}

interface Made {
  readonly name: string;
  readonly callNs: number;
  returnNs: number | null;
  /** The first read, by series. */
  readonly shown: Map<string, Shown | null>;
  removal: 'none' | 'begun' | 'done';
}

const stateOf = perRun(() => ({ series: [] as Series[], snapshots: [] as Made[] }));

async function write(program: ClientProgram): Promise<void> {
  while (!program.isEnding) {
    await new Writer(program).run().catch((error: unknown) => program.failed('series', error));
    await program.world.sleep(100);
  }
}

class Writer {
  readonly #program: ClientProgram;
  readonly #series: Series;

  constructor(program: ClientProgram) {
    this.#program = program;
    this.#series = { id: program.run.fresh(), steps: [] };
  }

  /** Ends if the outcome of a step is not known: then later steps have no known order. */
  async run(): Promise<void> {
    const { client, run, draw, world } = this.#program;
    const { id } = this.#series;
    const directory = { volume: VOLUME, path: `/${id}` };
    await client.command({ kind: 'make-directory', place: directory, mode: 0o755, ...ROOT_OWNS }, CALL);
    const [a, b] = [await this.#file('a'), await this.#file('b')];
    stateOf(run).series.push(this.#series);
    for (let n = 0; !this.#program.isEnding; n++) {
      await this.#step(() => a.write(0, number(n), CALL));
      await this.#step(() => this.#name(n));
      await this.#step(() => b.write(0, number(n), CALL));
      await world.sleep(draw.next() * PAUSE_MS);
      if (draw.chance(0.02)) return;
    }
  }

  async #file(name: string): Promise<FileHandle> {
    const { client } = this.#program;
    const attributes = await createFile(
      client,
      { volume: VOLUME, path: `/${this.#series.id}/${name}` },
      true,
    );
    return client.openFile(attributes.inode, attributes);
  }

  #name(n: number): Promise<unknown> {
    const { client } = this.#program;
    const place = { volume: VOLUME, path: `/${this.#series.id}/n${n}` };
    return client.command({ kind: 'symlink', place, target: 'n', ...ROOT_OWNS }, CALL);
  }

  async #step(take: () => Promise<unknown>): Promise<void> {
    const { run } = this.#program;
    const step: Step = { begunNs: run.nowNs(), ackedNs: null };
    this.#series.steps.push(step);
    await take();
    step.ackedNs = run.nowNs();
    run.count('snapshot step');
  }
}

const snap = turns(THINK_MS_MAX, async (program: ClientProgram) => {
  const { run, draw } = program;
  const { snapshots } = stateOf(run);
  const there = snapshots.filter(({ removal }) => removal === 'none');
  try {
    if (there.length < KEPT_MAX && draw.chance(0.4)) await create(program);
    else if (there.length > 0 && draw.chance(0.15)) await remove(program, draw.pick(there));
    else if (snapshots.length > 0) await look(program, draw.pick(snapshots));
  } catch (error) {
    program.failed('snapshot', error);
  }
});

async function create({ client, run }: ClientProgram): Promise<void> {
  const name = run.fresh();
  const made: Made = { name, callNs: run.nowNs(), returnNs: null, shown: new Map(), removal: 'none' };
  stateOf(run).snapshots.push(made);
  await client.command({ kind: 'snapshot-create', volume: VOLUME, name }, SNAPSHOT);
  made.returnNs = run.nowNs();
  run.count('snapshot made');
}

async function remove({ client, run }: ClientProgram, made: Made): Promise<void> {
  made.removal = 'begun';
  await client.command({ kind: 'snapshot-remove', volume: VOLUME, name: made.name }, CALL);
  made.removal = 'done';
  run.count('snapshot removed');
}

/** Reads all series that the snapshot shows, and compares them with the first read. */
async function look({ client, run, draw }: ClientProgram, made: Made): Promise<void> {
  const { removal, returnNs } = made;
  const [series] = draw.chance(0.5) ? stateOf(run).series.slice(-1) : [draw.pick(stateOf(run).series)];
  if (series === undefined) return;
  let shown: Shown | null;
  try {
    shown = await shownOf(client, `${VOLUME}@${made.name}`, series.id);
  } catch (error) {
    if (!(error instanceof ServiceError) || error.code !== 'not-found') throw error;
    if (removal === 'none' && made.removal === 'none' && returnNs !== null)
      run.violation(`snapshot ${made.name} is not there: ${error.message}`);
    return;
  }
  if (removal === 'done')
    run.violation(`snapshot ${made.name} was removed, and ${JSON.stringify(shown)} is read`);
  see(run, made, series.id, shown);
}

function see(run: Run, made: Made, series: string, shown: Shown | null): void {
  run.count('snapshot read');
  const before = made.shown.get(series);
  if (before === undefined) made.shown.set(series, shown);
  else if (JSON.stringify(before) !== JSON.stringify(shown))
    run.violation(
      `snapshot ${made.name} shows ${JSON.stringify(shown)} of ${series}, and showed ${JSON.stringify(before)}`,
    );
}

/** @returns null if the volume, or snapshot, does not show the series, or its files are not there yet */
async function shownOf(client: ClusterClient, volume: string, series: string): Promise<Shown | null> {
  const root = await client.resolve(volume, '/', LAST);
  const top = [];
  for await (const entry of client.list(root, LAST)) top.push(entry);
  const directory = top.find(({ name }) => name === series);
  if (directory === undefined) return null;
  const files = new Map<string, number>();
  let names = -1;
  for await (const { name, attributes } of client.list(directory.attributes, LAST)) {
    if (name.startsWith('n')) names = Math.max(names, Number(name.slice(1)));
    else {
      const text = await textOf(client.openFile(attributes.inode, attributes), 0, READ_BYTES, LAST);
      files.set(name, text === '' ? -1 : Number(text));
    }
  }
  const [a, b] = [files.get('a'), files.get('b')];
  return a === undefined || b === undefined ? null : { a, names, b };
}

const DIGITS = 8;

function number(n: number): Uint8Array {
  return Buffer.from(String(n).padStart(DIGITS, '0'));
}

/**
 * A snapshot must show the state after some step: all steps acknowledged before its request, and none begun after its
 * answer.
 */
function judgeShown(run: Run, made: Made, { id, steps }: Series, shown: Shown | null): void {
  const acked = steps.filter(({ ackedNs }) => ackedNs !== null && ackedNs < made.callNs).length;
  const begun = steps.filter(({ begunNs }) => begunNs < (made.returnNs ?? Number.POSITIVE_INFINITY)).length;
  const text = `snapshot ${made.name} shows ${JSON.stringify(shown)} of ${id}`;
  if (shown === null) {
    if (acked > 0) run.violation(`${text}, and ${acked} steps were acknowledged before`);
    return;
  }
  const count = shown.a + 1 + shown.names + 1 + shown.b + 1;
  const [a, names, b] = [Math.ceil(count / 3), Math.ceil((count - 1) / 3), Math.floor(count / 3)];
  if (a !== shown.a + 1 || names !== shown.names + 1 || b !== shown.b + 1)
    run.violation(`${text}, which was at no moment`);
  if (count < acked) run.violation(`${text}: ${count} steps, and ${acked} were acknowledged before`);
  if (count > begun) run.violation(`${text}: ${count} steps, and ${begun} were begun before it was answered`);
}

/** Archives a snapshot, and restores it as a volume of its own, which must show the same. */
async function archive(run: Run, client: ClusterClient, made: Made): Promise<void> {
  const report = emptyReport();
  const top = await client.resolve(`${VOLUME}@${made.name}`, '/', LAST);
  const restored: RestoreReport = { members: 0, dataBytes: 0, failed: [] };
  const volume = `restored-${made.name}`;
  await client.command(
    { kind: run.cluster.volumeCreate, name: volume, replicas: 3, objectBytes: 4_096 },
    LAST,
  );
  await restore(client, backup(client, top, report, LAST), { volume, path: '/' }, restored, LAST);
  for (const { path, why } of restored.failed)
    run.violation(`${path} of snapshot ${made.name} is not restored: ${why}`);
  for (const [series, shown] of made.shown) {
    if (shown === null) continue;
    const found = await shownOf(client, volume, series);
    if (JSON.stringify(found) !== JSON.stringify(shown))
      run.violation(
        `snapshot ${made.name} has ${JSON.stringify(shown)} of ${series}, and its archive ${JSON.stringify(found)}`,
      );
  }
  run.count('snapshot archived');
}

export const snapshots: Workload = {
  name: 'snapshots',
  demands: ['snapshot made', 'snapshot removed', 'snapshot read', 'snapshot archived'],
  async prepare(run, client) {
    await client.command({ kind: run.cluster.volumeCreate, name: VOLUME, replicas: 3, objectBytes: 4_096 });
  },
  client: async (program) => void (await Promise.all([write(program), snap(program)])),
  async settle(run, client) {
    const state = stateOf(run);
    const { snapshots } = await client.query({ kind: 'snapshots', volume: VOLUME }, LAST);
    const there = new Set(snapshots.map(({ name }) => name));
    for (const made of state.snapshots) {
      const { name, removal, returnNs } = made;
      if (removal === 'none' && returnNs !== null && !there.has(name))
        run.violation(`snapshot ${name} is gone`);
      if (removal === 'done' && there.has(name)) run.violation(`snapshot ${name} is there after its removal`);
      if (!there.has(name)) continue;
      for (const { id } of state.series.slice(-SERIES_LAST))
        see(run, made, id, await shownOf(client, `${VOLUME}@${name}`, id));
    }
    const last = state.snapshots.find(({ name, removal }) => removal === 'none' && there.has(name));
    if (last !== undefined) await archive(run, client, last);
  },
  judge(run) {
    const state = stateOf(run);
    const series = new Map(state.series.map((one) => [one.id, one]));
    for (const made of state.snapshots)
      for (const [id, shown] of made.shown) judgeShown(run, made, series.get(id) as Series, shown);
  },
};
