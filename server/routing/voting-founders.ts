import type { ServerId } from '../../base/ids.ts';
import type { Query, QueryResults } from '../../wire/catalog-api.ts';
import { storedVoters } from '../named/name-voters.ts';

/**
 * Names the founders as the voters of named leases in an answer of a catalog that has no view of these yet: they vote
 * until the voters change for the first time. Without them, a founder that leaves would not look like a voter.
 */
export function withVotingFounders<Q extends Query>(
  query: Q,
  result: QueryResults[Q['kind']],
  founders: readonly ServerId[],
): QueryResults[Q['kind']] {
  if (query.kind !== 'voters') return result;
  const { view } = result as QueryResults['voters'];
  return { view: storedVoters(view, founders) } as unknown as QueryResults[Q['kind']];
}
