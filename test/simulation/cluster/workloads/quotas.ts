/**
 * Several clients fill, cut, rewrite, replace, remove and restore the same few files of a volume with quotas and a trash. The
 * counters of the volume never exceed the quotas; that they equal a recount is for the judge of convergence to see.
 */
import type { ClientProgram } from '../program.ts';
import type { Workload } from '../workload.ts';

const VOLUME = 'limited';
const QUOTA_BYTES = 40_000;
const QUOTA_INODES = 9;
const NAMES = 8;
const WRITE_BYTES_MAX = 9_000;
const OFFSET_MAX = 12_000;
const HOUR_MS = 3_600_000;
const OWNER = { uid: 0, gid: 0 } as const;
const THINK_MS_MAX = 60;
const CALL = { timeoutMs: 20_000 } as const;

type Action = (program: ClientProgram) => Promise<unknown>;

const placeOf = ({ draw }: ClientProgram) => ({ volume: VOLUME, path: `/f${draw.integer(1, NAMES)}` });

/** @returns the file with a name, which is made where there is none */
async function opened(program: ClientProgram) {
  const { client } = program;
  const place = placeOf(program);
  const command = { kind: 'create-file', place, mode: 0o644, ...OWNER, exclusive: false } as const;
  const { attributes } = await client.command(command, CALL);
  return client.openFile(attributes.inode, attributes);
}

const bytesOf = ({ draw }: ClientProgram): Uint8Array => Buffer.alloc(draw.integer(1, WRITE_BYTES_MAX), 'q');

const ACTIONS: readonly { readonly weight: number; readonly name: string; readonly act: Action }[] = [
  {
    weight: 4,
    name: 'write',
    act: async (program) =>
      (await opened(program)).write(
        program.draw.integer(0, OFFSET_MAX),
        bytesOf(program),
        program.patience(),
      ),
  },
  {
    weight: 3,
    name: 'append',
    act: async (program) => (await opened(program)).write('append', bytesOf(program), program.patience()),
  },
  {
    // As open(2) with O_TRUNC, a few writes, and close.
    weight: 4,
    name: 'rewrite',
    act: async (program) => {
      const file = await opened(program);
      await file.truncate(0, CALL);
      const count = program.draw.integer(1, 3);
      for (let piece = 0; piece < count; piece++)
        await file.write('append', bytesOf(program), program.patience());
      if (program.draw.chance(0.7)) await file.settle(CALL);
    },
  },
  {
    weight: 2,
    name: 'truncate',
    act: async (program) =>
      (await opened(program)).truncate(program.draw.integer(0, OFFSET_MAX), program.patience()),
  },
  {
    weight: 2,
    name: 'unlink',
    act: (program) => program.client.command({ kind: 'unlink', place: placeOf(program) }, program.patience()),
  },
  {
    weight: 2,
    name: 'rename',
    act: (program) => {
      const [from, to] = [placeOf(program), placeOf(program)];
      return program.client.command({ kind: 'rename', from, to, mode: 'replace' }, program.patience());
    },
  },
  {
    weight: 1,
    name: 'link',
    act: async (program) => {
      const { inode } = await program.client.resolve(VOLUME, placeOf(program).path, CALL);
      await program.client.command({ kind: 'link', inode, place: placeOf(program) }, program.patience());
    },
  },
  {
    weight: 1,
    name: 'restore',
    act: async ({ client, draw }) => {
      const query = { kind: 'trash', volume: VOLUME, path: '/', after: null, countMax: 20 } as const;
      const { files } = await client.query(query, CALL);
      if (files.length === 0) return;
      await client.command({ kind: 'trash-restore', volume: VOLUME, inode: draw.pick(files).inode }, CALL);
    },
  },
  {
    weight: 2,
    name: 'empty',
    act: ({ client }) => client.command({ kind: 'trash-empty', volume: VOLUME, countMax: 100 }, CALL),
  },
  { weight: 3, name: 'usage', act: look },
];

const DRAWN = ACTIONS.flatMap((action) => Array.from({ length: action.weight }, () => action));

/** What answers about the state of a volume that others change. */
const REFUSALS = ['quota-exceeded', 'not-found', 'exists'];

async function look({ client, run }: ClientProgram): Promise<void> {
  const { volume } = await client.query({ kind: 'volume', name: VOLUME }, CALL);
  const { namedBytes, namedInodes, trashedBytes, trashedInodes } = volume;
  if (namedBytes > QUOTA_BYTES) run.violation(`volume ${VOLUME} has ${namedBytes} bytes of ${QUOTA_BYTES}`);
  if (namedInodes > QUOTA_INODES)
    run.violation(`volume ${VOLUME} has ${namedInodes} inodes of ${QUOTA_INODES}`);
  if (trashedBytes > namedBytes || trashedInodes > namedInodes)
    run.violation(`volume ${VOLUME} has more in its trash than in all: ${JSON.stringify(volume)}`);
}

export const quotas: Workload = {
  name: 'quotas',
  demands: ['quota-exceeded of bytes', ...ACTIONS.map(({ name }) => `quota ${name}`)],
  async prepare(_run, client) {
    await client.command({
      ...{ kind: 'volume-create', name: VOLUME, replicas: 3, objectBytes: 4_096, trashMs: HOUR_MS },
      ...{ quotaBytes: QUOTA_BYTES, quotaInodes: QUOTA_INODES },
    });
  },
  async client(program) {
    const { run, draw } = program;
    while (!program.isEnding) {
      await program.think(THINK_MS_MAX);
      const { name, act } = draw.pick(DRAWN);
      const outcome = await program.outcome(`quota ${name}`, REFUSALS, () => act(program));
      if (outcome === true) run.count(`quota ${name}`);
      else if (outcome === false && name === 'append') run.count('quota-exceeded of bytes');
    }
  },
};
