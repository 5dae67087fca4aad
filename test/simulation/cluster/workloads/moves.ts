import { ServiceError } from '../../../../base/errors.ts';
import type { Workload } from '../workload.ts';
import { sharedFilesOf } from './files.ts';
import { turns } from './parts.ts';

const MEMBERS = 3;
const THINK_MS_MAX = 2_500;
const ATTEMPT_MS = 5_000;
/** A server may join or be removed meanwhile. */
const REFUSALS: ReadonlySet<string> = new Set(['bad-request', 'precondition-failed']);

/** Moves the replicas of the files of `files` to other servers, if there are more servers than members. */
export const moves: Workload = {
  name: 'moves',
  demands: ['move'],
  fits: ({ servers }) => servers > MEMBERS,
  client: turns(THINK_MS_MAX, async (program) => {
    const { run, draw, client } = program;
    const current = sharedFilesOf(run).current.filter(({ inode }) => inode !== null);
    if (current.length === 0) return;
    const { inode, key } = draw.pick(current);
    const members = run.cluster.servers.filter(({ isRetired }) => !isRetired).map(({ id }) => id);
    while (members.length > MEMBERS) members.splice(draw.integer(0, members.length - 1), 1);
    const move = client.admin.changeMembers(inode as number, members, {
      ...program.patience(),
      attemptMs: ATTEMPT_MS,
    });
    const view = await program.attempt('move', () =>
      move.catch((error: unknown) => {
        if (error instanceof ServiceError && REFUSALS.has(error.code)) return null;
        throw error;
      }),
    );
    const outcome = view === null ? 'unknown' : `in view ${view.number}`;
    run.cluster.tell(`${program.name} moves ${key} to ${members.join()}: ${outcome}`);
    if (view !== null) run.count('move');
  }),
};
