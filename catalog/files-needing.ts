import { majority } from '../base/quorum.ts';
import type { QueryResults } from '../wire/catalog-api.ts';
import type { Tables } from './tables.ts';

/** Files that are examined for examples: those with the smallest numbers on the server. */
const EXAMINED_MAX = 2_000;
const EXAMPLES_MAX = 5;

/**
 * Files that have a majority of their servers only with `server`, while those of `without`, and removed ones, are
 * missing. Files without a majority anyway do not count. A file that moves to a missing server counts: its present and
 * its next members may both have to agree, so each of them may be needed.
 *
 * Costs a step for each set of servers that hold files, and for each file that moves to a missing server.
 */
export function filesNeeding(
  { placements, servers }: Tables,
  server: string,
  without: readonly string[],
): QueryResults['files-needing'] {
  const removed = servers.all().flatMap(({ id, state }) => (state === 'out' ? [id] : []));
  const missing = new Set([...without, ...removed]);
  const needs = (members: string): boolean => {
    const servers = members.split(',');
    const left = servers.filter((member) => member !== server && !missing.has(member)).length;
    return left === majority(servers.length) - 1;
  };
  const needing = placements.memberSets(server).filter(({ members }) => needs(members));
  const moving = placements.movingSets(server, [...missing]).filter(({ members }) => !needs(members));
  const examined = needing.length === 0 ? [] : placements.filesOn(server, 0, EXAMINED_MAX);
  const examples = examined.filter(({ replicas }) => needs(replicas)).map(({ id }) => id);
  return {
    files: [...needing, ...moving].reduce((sum, set) => sum + set.files, 0),
    examples: [...examples, ...moving.map(({ first }) => first)].slice(0, EXAMPLES_MAX),
    planned: placements.plannedCount(server),
  };
}
