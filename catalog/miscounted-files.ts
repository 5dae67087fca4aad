import type { PlacedPosition, ServerInfo } from '../wire/catalog-api.ts';
import { classFits, isRestricted } from '../wire/placement-class.ts';
import { type FileClass, placementClassOf } from './file-class.ts';
import { filesOfSets, type PlacedPage } from './placed-page.ts';
import type { PlacedSet } from './placement-tables.ts';
import type { Tables } from './tables.ts';

export interface MiscountedQuery {
  readonly after: PlacedPosition | null;
  /** How many servers there are for replicas: a file that has as many has not too few. */
  readonly servers: number;
  /** Servers that take no replicas, of those that labels and zones allow. */
  readonly away?: readonly string[];
  readonly countMax: number;
}

/**
 * Files with too few or too many replicas. Costs a step per number of replicas in a class and what is found, not what
 * is there: a change of a class's number makes them miscounted, and touches no file.
 */
export function miscountedFiles(tables: Tables, query: MiscountedQuery): PlacedPage {
  const { placements, volumes } = tables;
  const moved = new Set(tables.moves.moved());
  const servers = tables.servers.all();
  const isMiscounted = (set: PlacedSet): boolean => {
    if (moved.has(set.volume)) return false;
    const files = tables.classes.of(volumes.row(set.volume), set.placement);
    const count = set.wanted === 0 ? files.replicas : set.wanted;
    const most = isRestricted(placementClassOf(files)) ? allowedCount(files, servers, query) : query.servers;
    return set.members > count || set.members < Math.min(count, most);
  };
  return filesOfSets(placements, query, {
    isWrong: isMiscounted,
    next: (set, isWrong) => (isWrong ? placements.nextSet(set) : placements.nextCount(set)),
  });
}

function allowedCount(
  files: FileClass,
  servers: readonly ServerInfo[],
  { away = [] }: MiscountedQuery,
): number {
  const required = placementClassOf(files);
  return servers.filter(
    (server) => server.state === 'in' && !away.includes(server.id) && classFits(required, server),
  ).length;
}
