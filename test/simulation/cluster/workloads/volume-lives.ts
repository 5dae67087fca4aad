/**
 * Volumes with a few names are created, changed, filled, emptied and removed, each life with another tag, number of
 * replicas, policy and trash. Judged: their names are linearizable, an inode is never used twice, and a file has the
 * contents of its own life.
 */
import { ServiceError } from '../../../../base/errors.ts';
import type { ClientProgram } from '../program.ts';
import type { Workload } from '../workload.ts';
import { CALL, createFile, perRun, textOf, turns, weighted } from './parts.ts';

const NAMES = 3;
const KEY = 'directory/volumes';
const HOUR_MS = 3_600_000;
const THINK_MS_MAX = 150;
/** A tag is a quota that no volume reaches. */
const TAG_MIN = 1_000_000;

/** Contents of each file, by inode. */
const contentsOf = perRun(() => new Map<number, string>());

/** Properties of a volume, which do not affect the judgements. */
const drawn = ({ draw, run }: ClientProgram) => ({
  replicas: draw.pick(run.cluster.shape.servers >= 5 ? [3, 5] : [3]),
  trashMs: draw.pick([0, HOUR_MS]),
});

type Action = (program: ClientProgram, name: string) => Promise<unknown>;

const create: Action = (program, name) => {
  const { client, draw, run } = program;
  const tag = TAG_MIN + run.freshNumber();
  const policy = draw.pick(['quorum', 'quorum', 'all'] as const);
  const made = { name, objectBytes: 4_096, quotaInodes: tag, policy, ...drawn(program) };
  return program.operation('create', KEY, { name, value: `${tag}` }, { exists: false }, async () => {
    await client.command({ kind: run.cluster.volumeCreate, ...made }, program.patience());
    return true;
  });
};

/** Names of volumes that a program is removing: two removals of a volume with its own catalog may both succeed. */
const removalsOf = perRun(() => new Set<string>());

const remove: Action = async (program, name) => {
  const { client, run, world } = program;
  const removals = removalsOf(run);
  await program.attempt('empty volume', () => empty(program, name));
  if (removals.has(name)) return;
  removals.add(name);
  world.onEndOnce(() => removals.delete(name));
  await program.operation('unlink', KEY, { name }, { 'not-found': false }, async () => {
    await client.command({ kind: 'volume-remove', name }, program.patience());
    return true;
  });
  removals.delete(name);
};

/** Removes all names of the volume, and empties its trash. */
async function empty({ client }: ClientProgram, name: string): Promise<void> {
  try {
    const root = await client.resolve(name, '/', CALL);
    for await (const entry of client.list(root, CALL))
      await client.command({ kind: 'unlink', place: { volume: name, path: `/${entry.name}` } }, CALL);
    await client.command({ kind: 'trash-empty', volume: name, countMax: 1_000 }, CALL);
  } catch (error) {
    if (!(error instanceof ServiceError) || error.code !== 'not-found') throw error;
  }
}

const look: Action = (program, name) =>
  program.operation('lookup', KEY, { name }, { 'not-found': null }, async () => {
    const { volume } = await program.client.query({ kind: 'volume', name }, CALL);
    return `${volume.quotaInodes}`;
  });

const fill: Action = (program, name) =>
  program.outcome('fill volume', ['not-found', 'exists'], async () => {
    const { client, run } = program;
    const contents = contentsOf(run);
    const place = { volume: name, path: `/f${program.draw.integer(1, 4)}` };
    const attributes = await createFile(client, place, true);
    const { inode } = attributes;
    if (contents.has(inode)) run.violation(`inode ${inode} is used twice`);
    const value = run.fresh();
    contents.set(inode, value);
    await client.openFile(inode, attributes).write(0, Buffer.from(value, 'latin1'), CALL);
    run.count('volume filled');
  });

const read: Action = (program, name) =>
  program.outcome('read volume', ['not-found'], async () => {
    const { client, run } = program;
    const attributes = await client.resolve(name, `/f${program.draw.integer(1, 4)}`, CALL);
    const text = await textOf(client.openFile(attributes.inode, attributes), 0, 100, CALL);
    const own = contentsOf(run).get(attributes.inode);
    // Files whose creation was not answered are not known here.
    if (own !== undefined && text !== '' && text !== own)
      run.violation(`file ${attributes.inode} of volume ${name} has ${text}, and ${own} was written`);
  });

const set: Action = (program, name) =>
  program.outcome('set volume', ['not-found'], async () => {
    await program.client.command({ kind: 'volume-set', name, ...drawn(program) }, program.patience());
    program.run.count('volume set');
  });

const ACTIONS: readonly { readonly weight: number; readonly act: Action }[] = [
  { weight: 3, act: create },
  { weight: 2, act: remove },
  { weight: 3, act: look },
  { weight: 4, act: fill },
  { weight: 2, act: read },
  { weight: 1, act: set },
];

const DRAWN = weighted(ACTIONS);

export const volumeLives: Workload = {
  name: 'volume-lives',
  demands: ['volume filled'],
  client: turns(THINK_MS_MAX, (program) =>
    program.draw.pick(DRAWN).act(program, `life${program.draw.integer(1, NAMES)}`),
  ),
};
