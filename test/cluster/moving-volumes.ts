import type { ClusterClient } from '../../client/cluster/cluster-client.ts';
import type { VolumeMove } from '../../wire/volume-moves.ts';

/** Names without contents: the copy of a volume with them takes several pages. */
export const LINKS = 1_200;
const AT_ONCE = 100;
/** Pause between two queries for the phase of a move. */
export const WATCH_MS = 5;

export async function createLinks(client: ClusterClient, volume: string): Promise<void> {
  for (let link = 0; link < LINKS; link += AT_ONCE)
    await Promise.all(
      Array.from({ length: AT_ONCE }, (_, at) => {
        const place = { volume, path: `/link-${link + at}` };
        return client.command({ kind: 'symlink', place, target: 'file-0', uid: 0, gid: 0 });
      }),
    );
}

/** @returns how far the move to the catalog is; undefined if there is none */
export async function movePhase(
  client: ClusterClient,
  number: number,
): Promise<VolumeMove['phase'] | undefined> {
  const { moves } = await client.query({ kind: 'moves' });
  return moves.find(({ catalog }) => catalog === number)?.phase;
}
