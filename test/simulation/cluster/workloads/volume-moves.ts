import { ROOT_CATALOG } from '../../../../base/ids.ts';
import type { Workload } from '../workload.ts';
import { CALL, turns } from './parts.ts';

const THINK_MS_MAX = 3_000;
const CHECK_MS = 200;
/** Turns that end a move. */
const ABORT_SHARE = 0.25;

/** Moves the volumes of the run, under all other programs, to catalogs of their own; some moves are ended. */
export const volumeMoves: Workload = {
  name: 'volume-moves',
  demands: ['volume moved'],
  fits: ({ ownCatalogs }) => ownCatalogs !== true,
  toleratesPowerOfAll: true,
  client: turns(THINK_MS_MAX, async (program) => {
    const { client, draw, run } = program;
    const name = draw.pick(run.cluster.volumes);
    if (draw.chance(ABORT_SHARE)) {
      await program.outcome('end move', ['not-found', 'precondition-failed'], () =>
        client.command({ kind: 'volume-move-abort', name }, program.patience()),
      );
      return;
    }
    // A volume that has moved is elsewhere.
    await program.outcome('move volume', ['not-found', 'exists', 'precondition-failed'], () =>
      client.command({ kind: 'volume-move', name }, program.patience()),
    );
  }),
  async settle(run, client) {
    for (const name of run.cluster.volumes) {
      const { catalogs } = await client.query({ kind: 'catalogs' }, CALL);
      if (!catalogs.some((listed) => listed.name === name && listed.state !== 'removed')) continue;
      while ((await client.catalogOfVolume(name, CALL)) === ROOT_CATALOG) await client.world.sleep(CHECK_MS);
      run.count('volume moved');
    }
  },
};
