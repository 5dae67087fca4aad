/**
 * Goal: rows of numbers equal the values that were stored in them, whatever is added and removed.
 * Method: random commands on a table and on a map of values.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { CellId, Incarnation, ServerId } from '../../base/ids.ts';
import { BALLOT_ZERO, type Ballot } from '../../lease/ballot.ts';
import { CellTable } from '../../lease/cell-table.ts';
import { INCARNATIONS_MAX } from '../../lease/incarnations.ts';
import type { Lease } from '../../lease/lease.ts';
import type { Register } from '../../lease/register.ts';

function record<T>(parts: { [K in keyof T]: fc.Arbitrary<T[K]> }): fc.Arbitrary<T> {
  return fc.record(parts, { noNullPrototype: true }) as fc.Arbitrary<T>;
}

const ballot = record<Ballot>({
  interval: fc.nat(0xffff_fffe),
  round: fc.integer({ min: 1, max: 0xffff_ffff }),
  server: fc.constantFrom('a', 'b', 'c') as fc.Arbitrary<ServerId>,
  incarnation: fc.maxSafeNat() as fc.Arbitrary<Incarnation>,
});
const claim = record({ session: fc.maxSafeNat(), token: fc.maxSafeNat(), note: fc.string() });

function leaseOf(uid: Ballot, untilMs: number, released: boolean, held: Lease['claim']): Lease {
  return { holder: uid.server, incarnation: uid.incarnation, untilMs, uid, released, claim: held };
}

const lease = fc
  .tuple(ballot, fc.double({ noNaN: true, noDefaultInfinity: true }), fc.boolean(), fc.option(claim))
  .map(([uid, untilMs, released, held]) => leaseOf(uid, untilMs, released, held));
const register: fc.Arbitrary<Register> = fc.oneof(
  ballot.map((readBallot) => ({ readBallot, writeBallot: BALLOT_ZERO, lease: null })),
  fc.tuple(ballot, ballot, lease, fc.boolean()).map(([readBallot, writeBallot, set, fresh]) => ({
    readBallot: fresh ? writeBallot : readBallot,
    writeBallot,
    lease: fresh ? leaseOf(writeBallot, set.untilMs, set.released, set.claim) : set,
  })),
);
/** Few, so that cells repeat; adjacent and distant numbers, so that the index has collisions. */
const cell = fc.oneof(
  fc.nat(40),
  fc.nat(40).map((n) => 2 ** 40 + n * 2 ** 20),
) as fc.Arbitrary<CellId>;
const command = fc.oneof(
  record({ kind: fc.constant('register' as const), cell, register }),
  record({ kind: fc.constant('belief' as const), cell, lease: fc.option(lease) }),
  record({ kind: fc.constant('remove' as const), cell }),
);

test('a row returns what was stored in it', () => {
  fc.assert(
    fc.property(fc.array(command, { maxLength: 200 }), (commands) => {
      const table = new CellTable();
      const registers = new Map<CellId, Register>();
      const beliefs = new Map<CellId, Lease | null>();
      const rowOf = (id: CellId): number => table.find(id) ?? table.add(id);
      for (const command of commands) {
        if (command.kind === 'register') {
          table.setRegister(rowOf(command.cell), command.register);
          registers.set(command.cell, command.register);
          if (!beliefs.has(command.cell)) beliefs.set(command.cell, null);
        } else if (command.kind === 'belief') {
          table.setKnownLease(rowOf(command.cell), command.lease);
          beliefs.set(command.cell, command.lease);
        } else {
          const row = table.find(command.cell);
          assert.equal(row !== null, beliefs.has(command.cell));
          if (row !== null) table.remove(row);
          registers.delete(command.cell);
          beliefs.delete(command.cell);
        }
        assert.equal(table.size, beliefs.size);
      }
      for (const [id, belief] of beliefs) {
        const row = table.find(id);
        assert.ok(row !== null);
        assert.equal(table.cell(row), id);
        const expected = registers.get(id);
        if (expected !== undefined) assert.deepEqual(table.register(row), expected);
        const { holder, incarnation, untilMs, uid } = belief ?? {};
        const held = table.knownLease(row);
        assert.deepEqual(held, belief === null ? null : { holder, incarnation, untilMs, uid });
      }
    }),
    { numRuns: 300 },
  );
});

test('incarnations that no row uses any more free their entries for others', () => {
  const table = new CellTable();
  const row = table.add(1 as CellId);
  const kept = table.add(2 as CellId);
  const first: Ballot = { interval: 1, round: 1, server: 'a' as ServerId, incarnation: 1 as Incarnation };
  table.setRegister(kept, { readBallot: first, writeBallot: BALLOT_ZERO, lease: null });
  for (let life = 2; life < 2 * INCARNATIONS_MAX; life++) {
    // Of many servers: the incarnations of one are searched one after the other.
    const server = `s${life % 500}` as ServerId;
    const k = { ...first, round: life, server, incarnation: life as Incarnation };
    table.setRegister(row, { readBallot: k, writeBallot: BALLOT_ZERO, lease: null });
  }
  assert.deepEqual(table.register(kept).readBallot, first);
  assert.equal(table.register(row).readBallot.incarnation, 2 * INCARNATIONS_MAX - 1);
});
