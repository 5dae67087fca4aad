import type { Workload } from '../workload.ts';
import { SharedFiles } from './files.ts';

const MEMBERS = 3;
const THINK_MS_MAX = 2_500;
const ATTEMPT_MS = 5_000;

/** The replicas of the files of `files` move to other servers, where there are more servers than members. */
export const moves: Workload = {
  name: 'moves',
  demands: ['move'],
  fits: ({ servers }) => servers > MEMBERS,
  async client(program) {
    const { run, draw, client } = program;
    const ids = run.cluster.serverIds;
    while (!program.isEnding) {
      await program.think(THINK_MS_MAX);
      const current = SharedFiles.of(run).current.filter(({ inode }) => inode !== null);
      if (current.length === 0) continue;
      const { inode, key } = draw.pick(current);
      const members = [...ids];
      while (members.length > MEMBERS) members.splice(draw.integer(0, members.length - 1), 1);
      const view = await program.attempt('move', () =>
        client.admin.changeMembers(inode as number, members, {
          ...program.patience(),
          attemptMs: ATTEMPT_MS,
        }),
      );
      const outcome = view === null ? 'unknown' : `in view ${view.number}`;
      run.cluster.tell(`${program.name} moves ${key} to ${members.join()}: ${outcome}`);
      if (view !== null) run.count('move');
    }
  },
};
