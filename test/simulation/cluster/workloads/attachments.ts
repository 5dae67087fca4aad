/**
 * Volumes with catalogs of their own are attached in a volume of the root catalog and in each other, and detached, by
 * several programs. Judged: no list has a circle; a path that is followed into a volume reads that volume's file; what
 * one program attaches and detaches alone is where it was answered to be; and in the end all of it can be detached.
 */
import { ServiceError } from '../../../../base/errors.ts';
import { catalogOfInode } from '../../../../base/ids.ts';
import type { ClusterClient } from '../../../../client/cluster/cluster-client.ts';
import type { Query, QueryResults } from '../../../../wire/catalog-api.ts';
import type { ClientProgram } from '../program.ts';
import type { Run } from '../run.ts';
import type { Workload } from '../workload.ts';
import { CALL, createFile, perRun, ROOT_OWNS, textOf, turns, weighted } from './parts.ts';

/** In the root catalog. */
const TOP = 'top';
const NESTED = ['nest1', 'nest2', 'nest3'] as const;
/** One program attaches it alone, at the same path. */
const ALONE = 'alone';
const ALONE_AT = { volume: TOP, path: '/alone' };
/** A file of each volume, whose contents are the volume's name. */
const TAG = '/tag';
const DEPTH_MAX = 3;
const THINK_MS_MAX = 200;
/** Of the calls at the end. */
const LAST = { timeoutMs: 60_000 } as const;
/** Refusals that depend on what others have attached. */
const REFUSALS = ['attached', 'exists', 'not-found', 'precondition-failed'];

type Place = { readonly volume: string; readonly path: string };
type List = QueryResults['catalogs'];
type Action = (program: ClientProgram) => Promise<unknown>;

/** Whether a program has the volume `ALONE`. */
const aloneOf = perRun(() => ({ taken: false }));

const junctionOf = ({ draw }: ClientProgram): string => `/j${draw.integer(1, 2)}`;

/** A directory in the top volume, in another one, or in one that is attached below. */
function placeOf(program: ClientProgram): Place {
  const { draw } = program;
  const depth = draw.integer(1, DEPTH_MAX);
  const path = Array.from({ length: depth }, () => junctionOf(program)).join('');
  return { volume: draw.pick([TOP, TOP, ...NESTED]), path };
}

const attach: Action = (program) =>
  program.outcome('attach', REFUSALS, async () => {
    await program.client.admin.attach(program.draw.pick(NESTED), placeOf(program), program.patience());
    program.run.count('volume attached');
  });

const detach: Action = (program) =>
  program.outcome('detach', REFUSALS, () =>
    program.client.admin.detach(placeOf(program), program.patience()),
  );

const detachVolume: Action = (program) =>
  program.outcome('detach volume', REFUSALS, () =>
    program.client.admin.detachVolume(program.draw.pick(NESTED), program.patience()),
  );

/** Follows a path to a volume's file, and reads it. */
const follow: Action = (program) =>
  program.outcome('follow', ['not-found'], async () => {
    const { client, run } = program;
    const { volume, path } = placeOf(program);
    const end = await client.locate({ volume, path: `${path}${TAG}` }, 'target', CALL);
    if (end.path !== TAG) return;
    const text = await tagOf(client, end.volume);
    if (text !== end.volume) run.violation(`${volume}:${path} leads into ${end.volume}, and reads ${text}`);
    run.count('path followed');
  });

const look: Action = async ({ client, run }) => judgeList(run, await listOf(client, CALL));

const ACTIONS: readonly { readonly weight: number; readonly act: Action }[] = [
  { weight: 4, act: attach },
  { weight: 2, act: detach },
  { weight: 1, act: detachVolume },
  { weight: 4, act: follow },
  { weight: 2, act: look },
];

const DRAWN = weighted(ACTIONS);

/**
 * Attaches and detaches one volume by commands, which are executed once. It ends if the outcome of one is not known: an
 * attachment may still be executed after a detachment.
 */
async function attachAlone(program: ClientProgram): Promise<void> {
  const { client, run } = program;
  const catalog = await program.attempt('find alone', () => client.catalogOfVolume(ALONE, CALL));
  const turn = async (): Promise<boolean> => {
    const created = { kind: 'junction-create', place: ALONE_AT, volume: ALONE, mode: 0o755 } as const;
    const command = { ...created, catalog: catalog ?? 0, ...ROOT_OWNS };
    const { inode } = (await client.command(command, CALL)).attributes;
    await client.command({ kind: 'volume-attach', name: ALONE, inode }, CALL);
    await assertAlone(program, ALONE);
    await client.command({ kind: 'volume-detach', name: ALONE, inode }, CALL);
    await client.command({ kind: 'junction-remove', inode }, CALL);
    await assertAlone(program, TOP);
    run.count('attached alone');
    return true;
  };
  while (catalog !== null && !program.isEnding) {
    if ((await program.attempt('attach alone', turn)) === null) return;
    await program.think(THINK_MS_MAX);
  }
}

/** @param volume to which the path leads */
async function assertAlone({ client, run }: ClientProgram, volume: string): Promise<void> {
  const { catalogs } = await listOf(client, CALL);
  const isListed = catalogs.find(({ name }) => name === ALONE)?.attached !== undefined;
  const end = await client.locate({ ...ALONE_AT, path: `${ALONE_AT.path}${TAG}` }, 'target', CALL);
  if (isListed !== (volume === ALONE))
    run.violation(`${ALONE} is ${isListed ? '' : 'not '}listed as attached`);
  if (end.volume !== volume) run.violation(`The path leads into ${end.volume} instead of ${volume}`);
}

function listOf(client: ClusterClient, options: { readonly timeoutMs: number }): Promise<List> {
  return client.query<Extract<Query, { kind: 'catalogs' }>['kind']>({ kind: 'catalogs' }, options);
}

/** A volume is attached below no volume that is attached below it, and at no junction of another volume. */
function judgeList(run: Run, { version, catalogs }: List): void {
  const attached = catalogs.flatMap((row) => row.attached ?? []);
  if (new Set(attached).size !== attached.length) run.violation(`Two volumes are attached at one directory`);
  for (const start of catalogs) {
    let steps = 0;
    for (let row: typeof start | undefined = start; row?.attached !== undefined; steps++) {
      const above = catalogOfInode(row.attached);
      row = catalogs.find(({ number }) => number === above);
      if (steps <= catalogs.length) continue;
      run.violation(`List ${version} has a circle through ${start.name}`);
      return;
    }
  }
}

async function tagOf(client: ClusterClient, volume: string): Promise<string> {
  const attributes = await client.resolve(volume, TAG, CALL);
  return textOf(client.openFile(attributes.inode, attributes), 0, 100, CALL);
}

async function prepare(_run: Run, client: ClusterClient): Promise<void> {
  const settings = { replicas: 3, objectBytes: 4_096 };
  await client.command({ kind: 'volume-create', name: TOP, ...settings }, LAST);
  for (const name of [...NESTED, ALONE]) {
    await client.command({ kind: 'catalog-create', name, ...settings }, LAST);
    const attributes = await createFile(client, { volume: name, path: TAG }, true, LAST);
    await client.openFile(attributes.inode, attributes).write(0, Buffer.from(name), LAST);
  }
}

/** Detaches all volumes, removes the junctions that lead nowhere, and attaches one anew. */
async function settle(run: Run, client: ClusterClient): Promise<void> {
  judgeList(run, await listOf(client, LAST));
  for (const name of [...NESTED, ALONE])
    await client.admin.detachVolume(name, LAST).catch((error: unknown) => {
      if (!(error instanceof ServiceError) || error.code !== 'not-found') throw error;
    });
  for (const volume of [TOP, ...NESTED]) {
    const root = await client.resolve(volume, '/', LAST);
    for await (const { name, attributes } of client.list(root, LAST))
      if (attributes.junction !== undefined) await client.admin.detach({ volume, path: `/${name}` }, LAST);
  }
  const { catalogs } = await listOf(client, LAST);
  for (const { name, attached } of catalogs)
    if (attached !== undefined) run.violation(`${name} is attached at ${attached} after its detachment`);
  await client.admin.attach(NESTED[0], { volume: TOP, path: '/j1' }, LAST);
  const end = await client.locate({ volume: TOP, path: `/j1${TAG}` }, 'target', LAST);
  if (end.volume !== NESTED[0]) run.violation(`The path leads into ${end.volume} instead of ${NESTED[0]}`);
}

export const attachments: Workload = {
  name: 'attachments',
  demands: ['volume attached', 'path followed', 'attached alone'],
  // A client of one catalog cannot create the volumes' files.
  fits: ({ ownCatalogs }) => ownCatalogs === true,
  prepare,
  client: (program) => {
    const alone = aloneOf(program.run);
    if (alone.taken)
      return turns(THINK_MS_MAX, (one: ClientProgram) => one.draw.pick(DRAWN).act(one))(program);
    alone.taken = true;
    return attachAlone(program);
  },
  settle,
};
