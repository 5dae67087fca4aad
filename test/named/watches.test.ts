import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import type { CellId, ServerId } from '../../base/ids.ts';
import type { ClaimedLease, LeaseOutcome } from '../../lease/actions.ts';
import { MemberSource } from '../../server/named/lease-watches.ts';
import type { ClaimListener } from '../../server/named/named-lease-driver.ts';
import { NamedLeaseService } from '../../server/named/named-lease-service.ts';
import type { TimedLeaseState } from '../../wire/lease-changes.ts';
import { leaseNoteText } from '../../wire/named-lease.ts';
import { systemWorld } from '../../world/system-world.ts';

const CELL = 7 as CellId;
const MEMBERS = ['s1', 's2', 's3'] as ServerId[];

/** A member with one cell, which all names share. */
class OneCell {
  claim: ClaimedLease | null = null;
  looks = 0;
  listener: ClaimListener | null = null;
  readonly source: MemberSource;

  constructor() {
    const driver = {
      membersOf: () => MEMBERS,
      isMember: () => true,
      cellOf: () => CELL,
      claimOf: () => this.claim,
      execute: async (): Promise<LeaseOutcome> => {
        this.looks++;
        return this.claim === null ? { kind: 'free', lease: null } : { kind: 'seen', lease: this.claim };
      },
      listen: (listener: ClaimListener) => {
        this.listener = listener;
        return () => undefined;
      },
    };
    const timing = { leaseMaxMs: 10_000, clockSkewMaxMs: 100, nowMs: () => performance.now() };
    const service = new NamedLeaseService({
      ...timing,
      driver,
      operationTimeoutMs: 15_000,
      isConnected: () => true,
    });
    this.source = new MemberSource({
      world: systemWorld,
      ...timing,
      driver,
      log: pino({ level: 'silent' }),
      query: (name) => service.query(name),
      memberState: (name) => service.memberState(name),
    });
  }

  decide(note: string, token: number): void {
    this.claim = { session: 1, token, remainingMs: 5_000, note };
    this.listener?.claimed(CELL);
  }

  [Symbol.dispose](): void {
    this.source.close();
  }
}

const noteOf = (name: string) => leaseNoteText({ name, owner: 'somebody', ttlMs: 5_000, keys: {} });

test('a lease of another name with the same cell, or an unreadable one, does not end the server', async () => {
  using member = new OneCell();
  const told: TimedLeaseState[] = [];
  let ends = 0;
  const first = Promise.withResolvers<void>();
  const held = Promise.withResolvers<void>();
  member.source.open('mine', {
    changed: (state) => {
      told.push(state);
      first.resolve();
      if (state.held) held.resolve();
    },
    ended: () => ends++,
  });
  await first.promise;
  const before = member.looks;
  member.decide(noteOf('others'), 3);
  member.decide('{', 4);
  member.decide('', 5);
  assert.ok(member.looks > before, 'A majority is asked instead');
  assert.deepEqual(
    told.map((state) => state.held),
    [false],
    'Nothing of the other name is reported',
  );
  member.decide(noteOf('mine'), 6);
  await held.promise;
  assert.deepEqual([told.at(-1)?.token, told.at(-1)?.owner], [6, 'somebody']);
  assert.equal(ends, 0, 'The watch continued all the time');
});
