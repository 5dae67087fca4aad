import assert from 'node:assert/strict';
import { test } from 'node:test';
import { tooFewCatalogReplicas, tooFewVoters } from '../../server/status/redundancy.ts';
import type { ServerStatus } from '../../wire/http-api.ts';

test('status says on how few servers names are, what that risks, and what to do', () => {
  const said = (members: number, inCount: number, setting: number | null = null) =>
    tooFewCatalogReplicas({ members, inCount, setting }).join();
  assert.equal(said(1, 1), '', 'A server alone has no other to use');
  assert.equal(said(1, 2), 'Names are on 1 of 2 servers: one more failure loses them; add 1 server');
  assert.equal(
    said(1, 3),
    'Names are on 1 of 3 servers: one more failure loses them; they are being copied to others, until 3 have them',
  );
  assert.match(said(2, 3), /^Names are on 2 of 3 servers: one more failure makes them unavailable;/);
  for (const inCount of [3, 4]) assert.equal(said(3, inCount), '');
  assert.match(
    said(3, 5),
    /^Names are on 3 of 5 servers: two failures make them unavailable; .* until 5 have/,
  );
  assert.equal(said(5, 9), '');
  assert.equal(said(3, 9, 3), '');
  assert.match(said(3, 4, 7), /^Names are on 3 of 4 servers: two failures make .*; add 3 servers$/);
  assert.match(said(1, 1, 3), /one more failure loses them; add 2 servers$/, 'The setting asks for them');
  assert.equal(said(0, 3), '', 'The members are unknown');
});

test('status says that named leases have fewer voters than they are to have, if there are leases', () => {
  const said = (inCount: number, ...leases: readonly NonNullable<ServerStatus['namedLeases']>[]) =>
    tooFewVoters(
      inCount,
      leases.map((namedLeases) => ({ namedLeases }) as ServerStatus),
    ).join();
  const of = (known: number, voters: number, votersWanted?: number) => ({
    ...{ known, voters, recoveringMs: 0 },
    ...(votersWanted === undefined ? {} : { votersWanted }),
  });
  assert.equal(said(3, of(0, 1), of(0, 1)), '', 'There is no lease');
  assert.match(said(3, of(1, 1), of(0, 3)), /^Named leases have only one voter until more servers vote/);
  assert.equal(said(1, of(1, 1)), '');
  assert.equal(
    said(5, of(2, 3), of(0, 3, 5)),
    'Named leases have 3 voters until 5 servers vote: two failures make them unavailable',
  );
  assert.equal(said(5, of(2, 5), of(0, 5, 5)), '');
});
