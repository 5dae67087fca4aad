/**
 * Goal: a right that one server grants to another for a while ends at the holder before it ends at the grantor, by the
 * rates of clocks alone: no two clocks are ever compared.
 * Method: clocks with any readings and any rates within `DRIFT_MAX`, and messages with any delays. The test counts in
 * true time; every server sees only its own clock.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { FileId, Incarnation, ServerId } from '../../base/ids.ts';
import type { ReplicaAction, ReplicaConfig, ReplicaEvent } from '../../replica/actions.ts';
import type { Epoch } from '../../replica/epoch.ts';
import { EPOCH_ZERO } from '../../replica/epoch.ts';
import { DRIFT_MAX } from '../../replica/guard.ts';
import type { ReplicaMessage } from '../../replica/messages.ts';
import { ReadGrants, ReadLease } from '../../replica/read-lease.ts';
import { Replica } from '../../replica/replica.ts';

const [A, B, C] = ['a', 'b', 'c'] as ServerId[] as [ServerId, ServerId, ServerId];
const EPOCH: Epoch = { counter: 1, server: A, incarnation: 1 as Incarnation };
/** Less than the rounding errors of readings may add up to. */
const ROUNDING_MS = 1e-6;

interface Rate {
  readonly startMs: number;
  readonly rate: number;
}

/** A clock: its reading at any true time, and the true time of a reading. */
class Clock {
  readonly #startMs: number;
  readonly #rate: number;

  constructor({ startMs, rate }: Rate) {
    this.#startMs = startMs;
    this.#rate = rate;
  }

  at(trueMs: number): number {
    return this.#startMs + trueMs * this.#rate;
  }

  when(readingMs: number): number {
    return (readingMs - this.#startMs) / this.#rate;
  }
}

const clock = fc
  .record({
    startMs: fc.double({ min: 0, max: 1e6, noNaN: true }),
    // The extremes would fail first.
    rate: fc.oneof(
      fc.constantFrom(1 - DRIFT_MAX, 1, 1 + DRIFT_MAX),
      fc.double({ min: 1 - DRIFT_MAX, max: 1 + DRIFT_MAX, noNaN: true }),
    ),
  })
  .map((rate) => new Clock(rate));
const delayMs = fc.oneof(fc.constant(0), fc.double({ min: 0, max: 3_000, noNaN: true }));
const spanMs = fc.integer({ min: 1, max: 5_000 });

test('a holder reads no longer than its grantor counts with', () => {
  const round = fc.record({ pauseMs: delayMs, thereMs: delayMs, backMs: delayMs, durationMs: spanMs });
  fc.assert(
    fc.property(clock, clock, fc.array(round, { minLength: 1, maxLength: 5 }), (holder, grantor, rounds) => {
      const lease = new ReadLease(300, 0);
      const grants = new ReadGrants();
      let nowMs = 0;
      for (const { pauseMs, thereMs, backMs, durationMs } of rounds) {
        nowMs += pauseMs;
        const nonce = lease.request(holder.at(nowMs));
        nowMs += thereMs;
        grants.grant(B, EPOCH, grantor.at(nowMs), durationMs);
        nowMs += backMs;
        assert.ok(lease.granted(EPOCH, nonce, durationMs, 0));
      }
      const endMs = grantor.when(grants.nextEndMs(-Infinity));
      for (const afterMs of [0, 1, 1_000]) {
        assert.ok(!lease.covers(EPOCH, 0, holder.at(endMs + afterMs) + ROUNDING_MS));
      }
      assert.deepEqual(grants.holders(grants.nextEndMs(-Infinity) - 1), [B]);
      assert.deepEqual(grants.holders(grants.nextEndMs(-Infinity)), []);
    }),
    { numRuns: 1_000 },
  );
});

test('an ended grant wakes no waiter: it would be woken again and again', () => {
  const grants = new ReadGrants();
  grants.grant(B, EPOCH, 0, 100);
  assert.ok(grants.nextEndMs(50) > 100);
  assert.equal(grants.nextEndMs(200), Infinity);
});

test('a grantor counts with at most both margins', () => {
  fc.assert(
    fc.property(clock, clock, spanMs, (holder, grantor, durationMs) => {
      const lease = new ReadLease(300, 0);
      const grants = new ReadGrants();
      const nonce = lease.request(holder.at(0));
      grants.grant(B, EPOCH, grantor.at(0), durationMs);
      lease.granted(EPOCH, nonce, durationMs, 0);
      // A lease that is never valid would be safe, too.
      const early = (durationMs * (1 - DRIFT_MAX)) / (1 + DRIFT_MAX);
      assert.ok(lease.covers(EPOCH, 0, holder.at(early) - ROUNDING_MS));
      const late = (durationMs * (1 + DRIFT_MAX)) / (1 - DRIFT_MAX);
      assert.ok(grantor.when(grants.nextEndMs(-Infinity)) <= late + ROUNDING_MS);
    }),
  );
});

test('no candidate gets a promise while a primary may answer reads', () => {
  fc.assert(
    fc.property(
      clock,
      clock,
      fc.array(fc.record({ pauseMs: delayMs, thereMs: delayMs, backMs: delayMs }), {
        minLength: 1,
        maxLength: 4,
      }),
      delayMs,
      spanMs,
      (primary, backup, beats, candidateMs, leaseMs) => {
        const pair = new Pair(primary, backup);
        pair.lead(leaseMs * 5);
        for (const { pauseMs, thereMs, backMs } of beats) pair.beat(pauseMs, thereMs, backMs);
        const promisedMs = pair.candidate(candidateMs);
        assert.notEqual(pair.gateMs(promisedMs + ROUNDING_MS), 'serve');
      },
    ),
    { numRuns: 500 },
  );
});

test('a primary whose heartbeats are answered at once reads for nearly as long as its lease', () => {
  fc.assert(
    fc.property(clock, clock, (primary, backup) => {
      const pair = new Pair(primary, backup);
      pair.lead(10_000);
      pair.beat(0, 0, 0);
      assert.equal(pair.gateMs(9_000), 'serve');
    }),
  );
});

/** A primary and the backup that makes its majority, each with its own clock. */
class Pair {
  readonly #primary: Replica;
  readonly #backup: Replica;
  readonly #clocks: Readonly<Record<string, Clock>>;
  #nowMs = 0;

  constructor(primary: Clock, backup: Clock) {
    this.#clocks = { a: primary, b: backup };
    this.#primary = this.#make(A);
    this.#backup = this.#make(B);
  }

  #make(self: ServerId): Replica {
    const nowMs = this.#at(self);
    const config: ReplicaConfig = {
      self,
      incarnation: (self === A ? 1 : 2) as Incarnation,
      appliesAtPrimary: 'first',
      heartbeatMs: 1e9,
      quietHeartbeatMs: 1e9,
      beatsWithLease: false,
      readLeaseMs: 300,
      startGuardUntilMs: nowMs,
      candidatesFrom: 1,
      mayStartEmptyIfLost: false,
      silentMs: 1e9,
      retainedBytesMax: 1e6,
    };
    const sessions = new Uint8Array(0);
    const record = {
      view: { number: 1, members: [A, B] },
      promised: EPOCH_ZERO,
      installed: EPOCH_ZERO,
      seq: 0,
      sessions,
    };
    return new Replica(config, 1 as FileId, record, 'intact', nowMs);
  }

  #at(server: ServerId): number {
    return (this.#clocks[server] as Clock).at(this.#nowMs);
  }

  #step(replica: Replica, self: ServerId, event: ReplicaEvent): ReplicaMessage[] {
    const sent: ReplicaMessage[] = [];
    const queue = [event];
    for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
      for (const action of replica.step(next, this.#at(self))) {
        if (action.kind === 'send') sent.push(action.message);
        const done = completion(action);
        if (done !== null) queue.push(done);
      }
    }
    return sent;
  }

  #toBackup(message: ReplicaMessage): ReplicaMessage[] {
    return this.#step(this.#backup, B, { kind: 'message', from: message.epoch.server, message });
  }

  #toPrimary(message: ReplicaMessage): ReplicaMessage[] {
    return this.#step(this.#primary, A, { kind: 'message', from: B, message });
  }

  /** The reset, in no time; its first heartbeat gets lost. */
  lead(leaseMs: number): void {
    let asked = this.#step(this.#primary, A, { kind: 'lease', untilMs: this.#at(A) + leaseMs, view: 1 });
    while (this.#primary.role !== 'active') {
      const answers = asked.flatMap((message) => this.#toBackup(message));
      asked = answers.flatMap((message) => this.#toPrimary(message));
    }
  }

  /** A heartbeat, which a read causes, and its answer. */
  beat(pauseMs: number, thereMs: number, backMs: number): void {
    // Two requests at the same time would be one.
    this.#nowMs += 50 + pauseMs;
    const beats = this.#step(this.#primary, A, { kind: 'read-wanted' });
    this.#nowMs += thereMs;
    const answers = beats.flatMap((message) => this.#toBackup(message));
    this.#nowMs += backMs;
    for (const answer of answers) this.#toPrimary(answer);
  }

  /** @returns the true time at which the backup promises c an epoch that c requests after `delay` */
  candidate(delay: number): number {
    this.#nowMs += delay;
    const epoch: Epoch = { counter: 9, server: C, incarnation: 3 as Incarnation };
    const view = { number: 1, members: [A, B] };
    this.#toBackup({ kind: 'prepare', incarnation: epoch.incarnation, epoch, view });
    while (this.#backup.inspect().promised.counter !== epoch.counter) {
      const wakeMs = this.#backup.nextWakeMs();
      assert.ok(wakeMs !== null && wakeMs > this.#at(B), 'It answers by itself, later');
      this.#nowMs = Math.max(this.#nowMs, (this.#clocks.b as Clock).when(wakeMs + ROUNDING_MS));
      this.#step(this.#backup, B, { kind: 'tick' });
    }
    return this.#nowMs;
  }

  gateMs(trueMs: number): string {
    return this.#primary.readGate(0, (this.#clocks.a as Clock).at(trueMs));
  }
}

/** Reports of a disk that takes no time. */
function completion(action: ReplicaAction): ReplicaEvent | null {
  switch (action.kind) {
    case 'promise':
      return { kind: 'promised', epoch: action.epoch };
    case 'install':
      return { kind: 'installed', epoch: action.epoch, seq: action.seq };
    default:
      return null;
  }
}
