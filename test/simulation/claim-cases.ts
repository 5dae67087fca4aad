/**
 * Directed cases of the leases that clients hold: three servers that vote and one that only asks, each
 * message in a frame of its own. Each case is the smallest in which one planted bug shows.
 */
import type { CellId, ServerId } from '../../base/ids.ts';
import type { LeaseOrder, LeaseOutcome } from '../../lease/actions.ts';
import type { LeaseHost } from '../../lease/host.ts';
import type { LeaseMessage } from '../../lease/messages.ts';
import type { LeaseAlgorithm } from '../../lease/parameters.ts';
import type { VoterSet } from '../../lease/voters.ts';
import { ClaimServers } from './claim-servers.ts';
import { CHANGE_MS_MAX, type ClaimVoters } from './claim-voters.ts';
import { CLOCK_SKEW_MAX_MS, LEASE_MS, RECOVERY_MS } from './lease-world.ts';
import { Violation, violationOf } from './violation.ts';

const [A, B, C, D, E] = ['a', 'b', 'c', 'd', 'e'] as [ServerId, ServerId, ServerId, ServerId, ServerId];
const MEMBERS = [A, B, C];
const CELL = 1 as CellId;
const INTERVAL_MS = LEASE_MS - CLOCK_SKEW_MAX_MS;
const PATIENCE_MS = 500;

class ClaimStage extends ClaimServers {
  readonly #outcomes = new Map<number, LeaseOutcome>();
  #asked = 0;

  /** @param first servers that vote in the beginning, where that changes */
  constructor(algorithm: LeaseAlgorithm = 'flease', first: readonly ServerId[] | null = null) {
    super({ algorithm }, { seed: 1, servers: first === null ? 4 : 5 });
    if (first !== null) this.changeVoters({ servers: first, perCell: 3 });
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
      this.order(server, { ask, cell: CELL, order, deadlineMs });
    });
    return ask;
  }

  outcome(ask: number): LeaseOutcome | null {
    return this.#outcomes.get(ask) ?? null;
  }

  acquire(server: ServerId, session: number, spanMs = LEASE_MS): LeaseOutcome {
    return this.ask(server, { kind: 'acquire', session, spanMs, note: '' });
  }

  /** Begins to change the voters. */
  change(servers: readonly ServerId[]): void {
    this.#changing.step({ servers, perCell: 3 } satisfies VoterSet);
  }

  /**
   * These servers learn who votes, again and again, until there is a new view or the time is up.
   *
   * @param meanwhile is done each time
   * @returns whether there is a new view
   */
  changed(informed: readonly ServerId[], meanwhile: () => void = () => undefined): boolean {
    const { world } = this;
    const untilMs = world.nowMs + CHANGE_MS_MAX;
    while (world.nowMs < untilMs) {
      for (const server of informed) this.#changing.tell(server);
      if (this.#changing.step(null)) {
        for (const server of informed) this.#changing.tell(server);
        return true;
      }
      world.runFor(LEASE_MS / 20);
      meanwhile();
    }
    return false;
  }

  get #changing(): ClaimVoters {
    if (this.voters === null) throw new Error('The voters of this stage stay');
    return this.voters;
  }

  /** What does not pass from now on. */
  hold(matches: (from: ServerId, to: ServerId, kind: LeaseMessage['kind']) => boolean): void {
    this.world.intercept = ({ from, to, message }) => {
      const kind = message.messages[0]?.kind;
      return kind !== undefined && matches(from, to, kind) ? 'hold' : 'pass';
    };
  }

  protected members(): ServerId[] {
    return MEMBERS;
  }

  protected answered(ask: number, outcome: LeaseOutcome): void {
    this.#outcomes.set(ask, outcome);
  }

  protected send(host: LeaseHost, from: ServerId, to: ServerId, messages: LeaseMessage[]): void {
    for (const message of messages) {
      const envelope = host.envelope(to, this.world.clockMs(from));
      this.world.send(from, to, { envelope, messages: [message] });
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

  /** a, the only voter, has granted a lease; then b, c and d vote, who know nothing of it. */
  'a lease outlasts the joint voters': () => {
    const stage = new ClaimStage('flease', [A]);
    stage.change([B, C, D]);
    const untilMs = stage.world.nowMs + LEASE_MS;
    const first = tokenOf(stage.acquire(A, 1));
    if (!stage.changed([A, B, C, D])) throw new Violation('A change of voters ends');
    const outcome = stage.acquire(D, 2);
    if (stage.world.nowMs < untilMs && outcome.kind === 'granted') {
      throw new Violation('Two sessions hold one cell');
    }
    if (tokenOf(outcome) <= first) throw new Violation('A token of the voters after does not rise');
  },

  /** a, the only voter, does not learn of the change, and votes on. */
  'a voter that knows nothing of a change': () => {
    const stage = new ClaimStage('flease', [A]);
    stage.change([B, C, D]);
    if (!stage.changed([B, C, D])) return;
    demand(stage.acquire(A, 1), ['granted'], 'a is a majority of the voters that it knows');
    if (stage.acquire(D, 2).kind === 'granted') throw new Violation('Two sessions hold one cell');
  },

  /** Of five, three of which vote on the cell, two know nothing of the change: they are a majority of its voters. */
  'a majority of all is none of each cell': () => {
    const stage = new ClaimStage('flease', [A, B, C, D, E]);
    stage.change([D]);
    // Cell 1 has the voters b, c and d.
    stage.hold((from, to) => [B, C].includes(from) !== [B, C].includes(to));
    if (!stage.changed([A, D, E])) return;
    demand(stage.acquire(B, 1), ['granted'], 'b and c are a majority of the voters that they know');
    if (stage.acquire(D, 2).kind === 'granted') throw new Violation('Two sessions hold one cell');
  },

  /** a learns nothing of the change, and asks b, which votes by the later view and has never heard of the cell. */
  'a vote is of one view': () => {
    const stage = new ClaimStage('flease', [A, B, C]);
    stage.change([B, C, D]);
    if (!stage.changed([B, C, D])) throw new Violation('A change of voters ends without a minority');
    stage.hold((from, to) => (from === B && to === D) || (from === D && to === B));
    demand(stage.acquire(D, 1), ['granted'], 'c and d are a majority');
    stage.hold((from, to) => from === C || to === C);
    if (stage.acquire(A, 2).kind === 'granted') throw new Violation('Two sessions hold one cell');
  },

  /** A lease is acquired by one voter, refreshed while voters change, and known to those after. */
  'a lease is kept through a change of voters': () => {
    const stage = new ClaimStage('flease', [A]);
    const refresh = { kind: 'refresh', session: 1, spanMs: LEASE_MS, note: null } as const;
    const token = tokenOf(stage.acquire(A, 1));
    stage.change([B, C, D]);
    const kept = (): void => {
      if (tokenOf(stage.ask(B, refresh)) !== token) throw new Violation('A refresh keeps its token');
    };
    if (!stage.changed([A, B, C, D], kept)) throw new Violation('A change of voters ends');
    demand(stage.acquire(D, 2), ['taken'], 'Another asks after the change');
    kept();
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
