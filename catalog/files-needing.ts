import { majority } from '../base/quorum.ts';
import type { QueryResults } from '../wire/catalog-api.ts';
import type { Tables } from './tables.ts';

/** Files that are examined for examples: those with the smallest numbers on the server. */
const EXAMINED_MAX = 2_000;
const EXAMPLES_MAX = 5;

/**
 * Files that have a majority of their servers only with `server`, while those of `without` are missing. Costs a step
 * for each set of servers that hold files, not for each file. Files without a majority anyway do not count.
 */
export function filesNeeding(
  { placements }: Tables,
  server: string,
  without: readonly string[],
): QueryResults['files-needing'] {
  const missing = new Set(without);
  const needs = (members: string): boolean => {
    const servers = members.split(',');
    const left = servers.filter((member) => member !== server && !missing.has(member)).length;
    return left === majority(servers.length) - 1;
  };
  const needing = placements.memberSets(server).filter(({ members }) => needs(members));
  const files = needing.reduce((sum, set) => sum + set.files, 0);
  const examined = files === 0 ? [] : placements.filesOn(server, 0, EXAMINED_MAX);
  const examples = examined.filter(({ replicas }) => needs(replicas)).slice(0, EXAMPLES_MAX);
  return { files, examples: examples.map(({ id }) => id), planned: placements.plannedCount(server) };
}
