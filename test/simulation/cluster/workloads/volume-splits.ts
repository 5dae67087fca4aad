import type { ClusterClient } from '../../../../client/cluster/cluster-client.ts';
import type { Workload } from '../workload.ts';
import { CALL, perRun, turns } from './parts.ts';

const THINK_MS_MAX = 2_000;
const CHECK_MS = 200;
/** Turns that end a split. */
const ABORT_SHARE = 0.2;
const DIRECTORIES_MAX = 1_000;

const namesOf = perRun((): string[] => []);

/** Makes directories of the run's volumes, in which programs work, volumes of their own; some splits are ended. */
export const volumeSplits: Workload = {
  name: 'volume-splits',
  demands: ['volume split'],
  fits: ({ ownCatalogs }) => ownCatalogs !== true,
  toleratesPowerOfAll: true,
  client: turns(THINK_MS_MAX, async (program) => {
    const { client, draw, run } = program;
    const names = namesOf(run);
    if (names.length > 0 && draw.chance(ABORT_SHARE)) {
      await program.outcome('end split', ['not-found', 'precondition-failed'], () =>
        client.command({ kind: 'volume-move-abort', name: draw.pick(names) }, program.patience()),
      );
      return;
    }
    const volume = draw.pick(run.cluster.volumes);
    const directories = await program.attempt('list', () => directoriesOf(client, volume));
    if (directories === null || directories.length === 0) return;
    const name = `split-${run.fresh()}`.toLowerCase();
    names.push(name);
    await program.outcome('split', ['not-found', 'exists', 'precondition-failed', 'busy'], () =>
      client.command(
        { kind: 'volume-split', name, volume, path: `/${draw.pick(directories)}` },
        program.patience(),
      ),
    );
  }),
  async settle(run, client) {
    for (;;) {
      const { moves } = await client.query({ kind: 'moves' }, CALL);
      if (moves.every(({ phase }) => phase === 'forgotten')) break;
      await client.world.sleep(CHECK_MS);
    }
    const { catalogs } = await client.query({ kind: 'catalogs' }, CALL);
    for (const { name, state } of catalogs)
      if (state === 'ready' && namesOf(run).includes(name)) run.count('volume split');
  },
};

/** Names of the directories at the top that no volume is attached at. */
async function directoriesOf(client: ClusterClient, volume: string): Promise<string[]> {
  const { root } = (await client.query({ kind: 'volume', name: volume }, CALL)).volume;
  const page = { after: '', countMax: DIRECTORIES_MAX };
  const { entries } = await client.query({ kind: 'list', inode: root, ...page }, CALL);
  return entries
    .filter(({ attributes }) => attributes.kind === 'directory' && attributes.junction === undefined)
    .map(({ name }) => name);
}
