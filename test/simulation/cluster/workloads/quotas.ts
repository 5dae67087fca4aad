/**
 * Several clients fill, truncate, rewrite, replace, remove and restore the same few files of a volume with quotas and
 * a trash. The counters of the volume must never exceed the quotas; the judge of convergence checks that they equal a
 * recount.
 */
import type { FileHandle } from '../../../../client/cluster/file-handle.ts';
import type { ClientProgram } from '../program.ts';
import type { Workload } from '../workload.ts';
import { CALL, createFile, turns, weighted } from './parts.ts';

const VOLUME = 'limited';
const QUOTA_BYTES = 40_000;
const QUOTA_INODES = 9;
const NAMES = 8;
const WRITE_BYTES_MAX = 9_000;
const OFFSET_MAX = 12_000;
const HOUR_MS = 3_600_000;
const THINK_MS_MAX = 60;

type Action = (program: ClientProgram) => Promise<unknown>;

const action = (weight: number, name: string, act: Action) => ({ weight, name, act });

const placeOf = ({ draw }: ClientProgram) => ({ volume: VOLUME, path: `/f${draw.integer(1, NAMES)}` });
const bytesOf = ({ draw }: ClientProgram): Uint8Array => Buffer.alloc(draw.integer(1, WRITE_BYTES_MAX), 'q');

/** Opens a file, which is created if absent, and uses it. */
const withFile =
  (use: (file: FileHandle, program: ClientProgram) => Promise<unknown>): Action =>
  async (program) => {
    const attributes = await createFile(program.client, placeOf(program), false);
    return use(program.client.openFile(attributes.inode, attributes), program);
  };

const write = (file: FileHandle, at: number | 'append', program: ClientProgram): Promise<unknown> =>
  file.write(at, bytesOf(program), program.patience());

/** As open(2) with O_TRUNC, a few writes, and close. */
const rewrite = withFile(async (file, program) => {
  await file.truncate(0, CALL);
  for (let pieces = program.draw.integer(1, 3); pieces > 0; pieces--) await write(file, 'append', program);
  if (program.draw.chance(0.7)) await file.settle(CALL);
});

const truncate = withFile((file, program) =>
  file.truncate(program.draw.integer(0, OFFSET_MAX), program.patience()),
);

const ACTIONS = [
  action(
    4,
    'write',
    withFile((file, program) => write(file, program.draw.integer(0, OFFSET_MAX), program)),
  ),
  action(
    3,
    'append',
    withFile((file, program) => write(file, 'append', program)),
  ),
  action(4, 'rewrite', rewrite),
  action(2, 'truncate', truncate),
  action(2, 'unlink', (program) =>
    program.client.command({ kind: 'unlink', place: placeOf(program) }, program.patience()),
  ),
  action(2, 'rename', (program) => {
    const [from, to] = [placeOf(program), placeOf(program)];
    return program.client.command({ kind: 'rename', from, to, mode: 'replace' }, program.patience());
  }),
  action(1, 'link', async (program) => {
    const { inode } = await program.client.resolve(VOLUME, placeOf(program).path, CALL);
    await program.client.command({ kind: 'link', inode, place: placeOf(program) }, program.patience());
  }),
  action(1, 'restore', async ({ client, draw }) => {
    const query = { kind: 'trash', volume: VOLUME, path: '/', after: null, countMax: 20 } as const;
    const { files } = await client.query(query, CALL);
    if (files.length === 0) return;
    await client.command({ kind: 'trash-restore', volume: VOLUME, inode: draw.pick(files).inode }, CALL);
  }),
  action(2, 'empty', ({ client }) =>
    client.command({ kind: 'trash-empty', volume: VOLUME, countMax: 100 }, CALL),
  ),
  action(3, 'usage', look),
];

const DRAWN = weighted(ACTIONS);

/** Answers about the state of a volume that others change. */
const REFUSALS = ['quota-exceeded', 'not-found', 'exists'];

async function look({ client, run }: ClientProgram): Promise<void> {
  const { volume } = await client.query({ kind: 'volume', name: VOLUME }, CALL);
  const { namedBytes, namedInodes, trashedBytes, trashedInodes } = volume;
  const isWithin = namedBytes <= QUOTA_BYTES && namedInodes <= QUOTA_INODES;
  if (!isWithin || trashedBytes > namedBytes || trashedInodes > namedInodes)
    run.violation(`volume ${VOLUME} has more than its quotas, or in its trash: ${JSON.stringify(volume)}`);
}

export const quotas: Workload = {
  name: 'quotas',
  demands: ['quota-exceeded of bytes', ...ACTIONS.map(({ name }) => `quota ${name}`)],
  async prepare(run, client) {
    await client.command({
      ...{ kind: run.cluster.volumeCreate, name: VOLUME, replicas: 3, objectBytes: 4_096, trashMs: HOUR_MS },
      ...{ quotaBytes: QUOTA_BYTES, quotaInodes: QUOTA_INODES },
    });
  },
  client: turns(THINK_MS_MAX, async (program) => {
    const { run, draw } = program;
    const { name, act } = draw.pick(DRAWN);
    const outcome = await program.outcome(`quota ${name}`, REFUSALS, () => act(program));
    if (outcome === true) run.count(`quota ${name}`);
    else if (outcome === false && name === 'append') run.count('quota-exceeded of bytes');
  }),
};
