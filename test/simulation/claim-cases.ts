/**
 * Directed cases of the leases that clients hold: three servers that vote and one that only asks, each
 * message in a frame of its own. Each case is the smallest in which one planted bug shows.
 */
import type { CellId, Incarnation, ServerId } from '../../base/ids.ts';
import type { LeaseEvent, LeaseOrder, LeaseOutcome } from '../../lease/actions.ts';
import type { LeaseFrame } from '../../lease/codec.ts';
import { LeaseHost } from '../../lease/host.ts';
import type { LeaseMessage } from '../../lease/messages.ts';
import type { LeaseAlgorithm } from '../../lease/parameters.ts';
import { CLOCK_SKEW_MAX_MS, LEASE_MS, RECOVERY_MS, TIMING } from './lease-world.ts';
import { Violation, violationOf } from './violation.ts';
import { type Process, World } from './world.ts';

const [A, B, C, D] = ['a', 'b', 'c', 'd'] as [ServerId, ServerId, ServerId, ServerId];
const MEMBERS = [A, B, C];
const CELL = 1 as CellId;
const INTERVAL_MS = LEASE_MS - CLOCK_SKEW_MAX_MS;
const PATIENCE_MS = 500;

class ClaimStage {
  readonly world: World<LeaseFrame>;
  readonly #hosts = new Map<ServerId, LeaseHost>();
  readonly #outcomes = new Map<number, LeaseOutcome>();
  readonly #algorithm: LeaseAlgorithm;
  #asked = 0;

  constructor(algorithm: LeaseAlgorithm = 'flease') {
    this.#algorithm = algorithm;
    this.world = new World<LeaseFrame>({
      seed: 1,
      servers: 4,
      boot: (server, incarnation) => this.#boot(server, incarnation),
    });
    this.world.start();
    this.world.runFor(RECOVERY_MS + INTERVAL_MS);
    // A little after the beginning of a ballot interval.
    this.world.runFor(2 * INTERVAL_MS - (this.world.nowMs % INTERVAL_MS) + 5);
  }

  /** Asks and waits for the outcome. */
  ask(server: ServerId, order: LeaseOrder): LeaseOutcome {
    const ask = this.asking(server, order);
    this.world.runFor(PATIENCE_MS + 1, () => this.#outcomes.has(ask));
    return this.#outcomes.get(ask) ?? { kind: 'unknown' };
  }

  /** Asks. @returns the number of the order */
  asking(server: ServerId, order: LeaseOrder): number {
    const ask = ++this.#asked;
    this.world.call(server, () => {
      const deadlineMs = this.world.clockMs(server) + PATIENCE_MS;
      this.#step(server, { kind: 'ask', ask, cell: CELL, view: 1, members: MEMBERS, order, deadlineMs });
    });
    return ask;
  }

  outcome(ask: number): LeaseOutcome | null {
    return this.#outcomes.get(ask) ?? null;
  }

  acquire(server: ServerId, session: number, spanMs = LEASE_MS): LeaseOutcome {
    return this.ask(server, { kind: 'acquire', session, spanMs, note: '' });
  }

  /** What does not pass from now on. */
  hold(matches: (from: ServerId, to: ServerId, kind: LeaseMessage['kind']) => boolean): void {
    this.world.intercept = ({ from, to, message }) => {
      const kind = message.messages[0]?.kind;
      return kind !== undefined && matches(from, to, kind) ? 'hold' : 'pass';
    };
  }

  #boot(server: ServerId, incarnation: Incarnation): Process<LeaseFrame> {
    const config = { self: server, incarnation, algorithm: this.#algorithm, ...TIMING };
    const host = new LeaseHost(config, this.world.clockMs(server));
    this.#hosts.set(server, host);
    return {
      message: (from, frame) => this.#step(server, { kind: 'frame', from, ...frame }),
      tick: () => this.#step(server, { kind: 'tick' }),
      nextWakeMs: () => host.nextWakeMs(),
    };
  }

  #step(server: ServerId, event: LeaseEvent): void {
    const host = this.#hosts.get(server);
    if (host === undefined) throw new Error(`Server ${server} was never started`);
    const nowMs = this.world.clockMs(server);
    for (const action of host.step(event, nowMs)) {
      if (action.kind === 'answered') this.#outcomes.set(action.ask, action.outcome);
      if (action.kind !== 'send') continue;
      const { to, message } = action;
      this.world.send(server, to, { envelope: host.envelope(to, nowMs), messages: [message] });
    }
  }
}

/** @throws Violation */
function demand(outcome: LeaseOutcome | null, kinds: readonly LeaseOutcome['kind'][], what: string): void {
  const got = outcome?.kind ?? 'nothing';
  if (!kinds.some((kind) => kind === got)) throw new Violation(`${what}: ${got}, not ${kinds.join(' or ')}`);
}

/** @throws Violation */
function tokenOf(outcome: LeaseOutcome): number {
  demand(outcome, ['granted'], 'A free cell is acquired');
  return 'lease' in outcome && outcome.lease !== null ? outcome.lease.token : 0;
}

const CASES: Readonly<Record<string, () => void>> = {
  /** d, which has no vote, has not seen a's ballot and draws one that is larger by its name only. */
  'tokens rise': () => {
    const stage = new ClaimStage();
    const first = tokenOf(stage.acquire(A, 1, 50));
    stage.world.runFor(50 + CLOCK_SKEW_MAX_MS + 5);
    const second = tokenOf(stage.acquire(D, 2));
    if (second <= first) throw new Violation(`Token ${second} follows ${first}`);
  },

  'what is over is not refreshed': () => {
    const stage = new ClaimStage();
    stage.acquire(A, 1, 50);
    stage.world.runFor(50 + CLOCK_SKEW_MAX_MS / 2);
    const outcome = stage.ask(B, { kind: 'refresh', session: 1, spanMs: LEASE_MS, note: null });
    demand(outcome, ['free'], 'A refresh after the end');
  },

  /** What is over on b's clock may run on that of the server that granted it. */
  'grace is waited out': () => {
    const stage = new ClaimStage();
    stage.acquire(A, 1, 200);
    stage.world.runFor(200 + CLOCK_SKEW_MAX_MS / 2);
    demand(stage.acquire(B, 2), ['taken'], 'Another asks in the grace period');
  },

  'what is given back is free': () => {
    const stage = new ClaimStage();
    stage.acquire(A, 1);
    demand(stage.ask(B, { kind: 'release', session: 1 }), ['free'], 'It is given back');
    demand(stage.acquire(C, 2), ['granted'], 'Another asks for what was given back');
  },

  /** a's WRITE reaches only a. b is told so by {a, b}; then c is asked, who hears from {b, c}. */
  'what was seen stays': () => {
    const stage = new ClaimStage();
    stage.hold((from, _to, kind) => from === A && kind === 'write');
    stage.asking(A, { kind: 'acquire', session: 1, spanMs: LEASE_MS, note: '' });
    stage.world.runFor(20);
    stage.hold((from, to) => from === C || to === C);
    demand(stage.ask(B, { kind: 'look' }), ['seen'], 'b looks');
    stage.hold((from, to) => from === A || to === A);
    demand(stage.ask(C, { kind: 'look' }), ['seen'], 'c looks');
  },

  'a stranger extends nothing': () => {
    const stage = new ClaimStage();
    stage.acquire(A, 1);
    demand(stage.acquire(B, 2), ['taken'], 'Another asks for a lease that runs');
  },

  /** A majority's answers come when what it has granted is over. */
  'a grant runs': () => {
    const stage = new ClaimStage();
    const spanMs = 20;
    const waitMs = 40;
    stage.hold((_from, to, kind) => to === A && kind === 'ack-write');
    const ask = stage.asking(A, { kind: 'acquire', session: 1, spanMs, note: '' });
    stage.world.runFor(waitMs);
    stage.world.intercept = null;
    stage.world.deliver();
    const outcome = stage.outcome(ask);
    if (outcome?.kind === 'granted') throw new Violation(`${spanMs} ms are granted after ${waitMs} ms`);
  },

  /** PaxosLease: the client does not hear that it was given less than it still has. */
  'a shorter refresh that nobody heard of': () => {
    const stage = new ClaimStage('paxoslease');
    stage.acquire(A, 1);
    stage.ask(B, { kind: 'refresh', session: 1, spanMs: 100, note: null });
    stage.world.runFor(300);
    demand(stage.acquire(C, 2), ['taken'], 'Another asks before the end of the first grant');
  },
};

export const CLAIM_CASES: Readonly<Record<string, () => string | null>> = Object.fromEntries(
  Object.entries(CASES).map(([name, play]) => [name, () => violationOf(play)]),
);
