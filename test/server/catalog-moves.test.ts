/** Goal: before a catalog moves, each new member has a replica; after it, this server knows the new members. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import type { CatalogNumber, ServerId } from '../../base/ids.ts';
import { CatalogMoves } from '../../server/catalog/catalog-moves.ts';
import { rowOf } from './catalog-cluster.ts';

const [A, B, C, D] = ['a', 'b', 'c', 'd'] as [ServerId, ServerId, ServerId, ServerId];
const ONE = 1 as CatalogNumber;

function fixture(isKnown = true) {
  const events: string[] = [];
  let known = isKnown;
  const moves = new CatalogMoves({
    self: D,
    known: {
      byNumber: () => (known ? rowOf([A, B]) : null),
      noteView: (_, { number, members }) => void events.push(`view ${number} ${members.join()}`),
    },
    catalogs: {
      at: () => ({ status: () => ({ members: [A, B] }) }) as never,
      openForMove: async (number) => void events.push(`open ${number}`),
    },
    call: async (to, method, payload) => {
      events.push(`${method} at ${to}: ${Buffer.from(payload)}`);
      if (to === 'e') throw new ServiceError('storage', 'Its disk is full');
      return new Uint8Array(0);
    },
    changeMembers: async (number, members) => {
      events.push(`change ${number}`);
      return { number: 3, members };
    },
    refresh: async () => {
      events.push('refresh');
      known = true;
    },
  });
  return { moves, events };
}

test('new members open replicas before the change, here and elsewhere', async () => {
  const { moves, events } = fixture();
  await moves.change(ONE, [B, C, D]);
  const opened = ['open-catalog at c: {"number":1}', 'open 1'];
  assert.deepEqual(events, [...opened, 'change 1', 'view 3 b,c,d']);
});

test('without a replica at a new member, nothing moves', async () => {
  const { moves, events } = fixture();
  await assert.rejects(moves.change(ONE, [A, 'e' as ServerId]), { code: 'storage' });
  assert.deepEqual(events, ['open-catalog at e: {"number":1}']);
});

test('a server that does not know the catalog fetches the list first', async () => {
  const { moves, events } = fixture(false);
  await moves.serve('open-catalog', Buffer.from('{"number":1}'));
  assert.deepEqual(events, ['refresh', 'open 1']);
  assert.equal(moves.serve('hold-catalog', new Uint8Array(0)), null);
  for (const text of ['', '{}', '{"number":0}', '{"number":32768}', '{"number":1.5}'])
    await assert.rejects(moves.serve('open-catalog', Buffer.from(text)) ?? Promise.resolve(), {
      name: 'MalformedError',
    });
});
