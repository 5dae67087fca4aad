/**
 * Clones of snapshots whose source is written: each file of a clone begins with what its snapshot shows, whenever it is
 * copied, and has what was written to it after that. The files of the source belong to one writer, those of a clone to
 * one each.
 */
import { ServiceError } from '../../../../base/errors.ts';
import type { ClusterClient } from '../../../../client/cluster/cluster-client.ts';
import type { ClientProgram } from '../program.ts';
import type { Run } from '../run.ts';
import type { Workload } from '../workload.ts';
import { CALL, createFile, perRun, textOf, turns } from './parts.ts';

const VOLUME = 'source';
const FILES = ['/f0', '/f1', '/f2', '/f3', '/f4', '/f5'];
const DIGITS = 8;
/** The second object of a file; a source has the first and the last one. */
const OWN_AT = 4_096;
const SIZE_BYTES = 3 * 4_096;
const CLONES_MAX = 4;
const THINK_MS_MAX = 400;
const CALL_LONG = { timeoutMs: 30_000 } as const;
const LAST = { timeoutMs: 60_000 } as const;

interface CloneFile {
  readonly path: string;
  /** What it has of its snapshot, once read. */
  base: string | null;
  /** The last write that was acknowledged, and the last one that was begun; 0: none. */
  acked: number;
  begun: number;
  /** Whether the outcome of its last write is not known: it is written no more. */
  isUnknown: boolean;
  isBusy: boolean;
}

interface Clone {
  readonly name: string;
  readonly snapshot: string;
  readonly files: readonly CloneFile[];
  isThere: boolean;
  isFlattened: boolean;
}

const stateOf = perRun(() => ({ clones: [] as Clone[], written: 0 }));

const textFor = (n: number) => String(n).padStart(DIGITS, '0');

async function writeSource(program: ClientProgram): Promise<void> {
  const { client, run, draw, world } = program;
  const state = stateOf(run);
  while (!program.isEnding) {
    try {
      const { inode } = await client.resolve(VOLUME, draw.pick(FILES), CALL);
      await client.openFile(inode).write(0, Buffer.from(textFor(++state.written)), CALL);
      run.count('source of clones written');
    } catch (error) {
      program.failed('source', error);
    }
    await world.sleep(1 + draw.next() * THINK_MS_MAX);
  }
}

const useClones = turns(THINK_MS_MAX, async (program: ClientProgram) => {
  const { run, draw } = program;
  const there = stateOf(run).clones.filter(({ isThere }) => isThere);
  try {
    if (stateOf(run).clones.length < CLONES_MAX && draw.chance(0.2)) return await make(program);
    if (there.length === 0) return;
    const clone = draw.pick(there);
    const file = draw.pick(clone.files);
    if (draw.chance(0.04)) return await flatten(program, clone);
    if (draw.chance(0.5) && !file.isBusy && !file.isUnknown) return await write(program, clone, file);
    await read(run, program.client, clone, file, CALL_LONG);
  } catch (error) {
    program.failed('clone', error);
  }
});

async function make({ client, run }: ClientProgram): Promise<void> {
  const [name, snapshot] = [run.fresh(), run.fresh()];
  const files = FILES.map((path): CloneFile => {
    return { path, base: null, acked: 0, begun: 0, isUnknown: false, isBusy: false };
  });
  const clone: Clone = { name, snapshot, files, isThere: false, isFlattened: false };
  stateOf(run).clones.push(clone);
  await client.command({ kind: 'snapshot-create', volume: VOLUME, name: snapshot }, CALL);
  await client.command({ kind: 'clone-create', name, volume: VOLUME, snapshot }, CALL);
  clone.isThere = true;
  run.count('clone made');
}

async function flatten({ client, run }: ClientProgram, clone: Clone): Promise<void> {
  await client.command({ kind: 'clone-flatten', name: clone.name }, CALL);
  clone.isFlattened = true;
  run.count('clone flattened');
}

async function write({ client, run }: ClientProgram, clone: Clone, file: CloneFile): Promise<void> {
  file.isBusy = true;
  try {
    const { inode, shared } = await client.resolve(clone.name, file.path, CALL);
    file.begun++;
    file.isUnknown = true;
    await client.openFile(inode).write(OWN_AT, Buffer.from(textFor(file.begun)), CALL_LONG);
    file.isUnknown = false;
    file.acked = file.begun;
    run.count(shared === true ? 'shared file written' : 'file of a clone written');
  } finally {
    file.isBusy = false;
  }
}

/** A file has what its snapshot shows, and no write before the last one that was acknowledged when the read began. */
async function read(
  run: Run,
  client: ClusterClient,
  clone: Clone,
  file: CloneFile,
  options: { readonly timeoutMs: number },
): Promise<void> {
  const { acked } = file;
  const { inode, sizeBytes } = await client.resolve(clone.name, file.path, options);
  const text = await textOf(client.openFile(inode), 0, SIZE_BYTES, options);
  run.count('file of a clone read');
  const what = `${clone.name}${file.path}, of ${clone.snapshot},`;
  if (sizeBytes !== SIZE_BYTES || text.length !== SIZE_BYTES)
    run.violation(`${what} has ${sizeBytes} bytes, of which ${text.length} are read`);
  const own = text.slice(OWN_AT, OWN_AT + DIGITS);
  const number = own === '\0'.repeat(DIGITS) ? 0 : Number(own);
  if (!(number >= acked && number <= file.begun))
    run.violation(`${what} has write ${JSON.stringify(own)}: ${acked} was acknowledged, ${file.begun} begun`);
  const base = text.slice(0, OWN_AT) + text.slice(OWN_AT + DIGITS);
  file.base ??= base;
  if (base !== file.base)
    run.violation(
      `${what} begins with ${base.slice(0, DIGITS)}, and began with ${file.base.slice(0, DIGITS)}`,
    );
}

/** What the snapshot shows is what its clone began with. */
async function compareWithSnapshot(run: Run, client: ClusterClient, clone: Clone): Promise<void> {
  for (const { path, base } of clone.files) {
    if (base === null) continue;
    const attributes = await client.resolve(`${VOLUME}@${clone.snapshot}`, path, LAST);
    const text = await textOf(client.openFile(attributes.inode, attributes), 0, SIZE_BYTES, LAST);
    const shown = text.slice(0, OWN_AT) + text.slice(OWN_AT + DIGITS);
    if (shown !== base)
      run.violation(
        `${clone.snapshot}${path} begins with ${shown.slice(0, DIGITS)}, its clone with ${base.slice(0, DIGITS)}`,
      );
  }
}

async function whenFlat(run: Run, client: ClusterClient, { name }: Clone): Promise<void> {
  await client.command({ kind: 'clone-flatten', name }, LAST);
  for (let waits = 0; ; waits++) {
    const { volume } = await client.query({ kind: 'volume', name }, LAST);
    if (volume.clone === undefined) return;
    if (waits === 120) {
      run.violation(`${volume.clone.unfilled} files of clone ${name} are not copied within two minutes`);
      return;
    }
    await client.world.sleep(1_000);
  }
}

export const clones: Workload = {
  name: 'clones',
  demands: ['clone made', 'clone flattened', 'shared file written', 'file of a clone read'],
  fits: ({ ownCatalogs }) => ownCatalogs !== true,
  async prepare(run, client) {
    await client.command({ kind: 'volume-create', name: VOLUME, replicas: 3, objectBytes: 4_096 });
    for (const path of FILES) {
      const file = client.openFile((await createFile(client, { volume: VOLUME, path }, true)).inode);
      await file.write(0, Buffer.from(textFor(0)));
      await file.write(SIZE_BYTES - 1, Buffer.from('.'));
      await file.settle();
    }
    run.count('source of clones made');
  },
  client: async (program) => void (await Promise.all([writeSource(program), useClones(program)])),
  async settle(run, client) {
    for (const clone of stateOf(run).clones) {
      const isThere = await client.query({ kind: 'volume', name: clone.name }, LAST).then(
        () => true,
        (error: unknown) => {
          if (error instanceof ServiceError && error.code === 'not-found') return false;
          throw error;
        },
      );
      if (clone.isThere && !isThere) run.violation(`clone ${clone.name} is gone`);
      if (!isThere) continue;
      for (const file of clone.files) await read(run, client, clone, file, LAST);
      await compareWithSnapshot(run, client, clone);
      await whenFlat(run, client, clone);
      await client.command({ kind: 'snapshot-remove', volume: VOLUME, name: clone.snapshot }, LAST);
      for (const file of clone.files) await read(run, client, clone, file, LAST);
    }
  },
};
