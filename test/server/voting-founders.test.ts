import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ServerId } from '../../base/ids.ts';
import { withVotingFounders } from '../../server/routing/voting-founders.ts';

const FOUNDERS = ['s1', 's2', 's3'] as ServerId[];

test('the founders vote on named leases until the catalog has another view', () => {
  const query = { kind: 'voters' } as const;
  const first = withVotingFounders(query, { view: null }, FOUNDERS).view;
  assert.deepEqual([first?.number, first?.members.servers], [1, FOUNDERS]);
  const later = { number: 2, members: { servers: ['s4'], perCell: 5 }, clockMs: 7 };
  assert.deepEqual(withVotingFounders(query, { view: later }, FOUNDERS), { view: later });
});
