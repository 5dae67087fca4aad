/**
 * Directed runs of the leases that clients hold, scripts in `test/testdata/simulation/claim/cases.txt`: three servers
 * that vote and one that only proposes, or voters that change; each message in a frame of its own. In all runs no two
 * sessions hold the cell, a session keeps its token, and in Flease tokens rise.
 *
 *     algorithm paxoslease, voters abc      first; `voters`: the first voters, if they change
 *     acquire a 1 [50ms] granted            asks a for session 1, by default for a whole lease; the outcome, or `any`
 *     refresh a 1 [50ms] granted, release a 1 free, look a seen
 *     begin a acquire 1 [50ms]; not granted          asks without a wait; later: no lease was granted
 *     change bcd                            begins to change the voters to these
 *     changed abc [or end] [while STATEMENT]         these servers learn the voters until there is a new view; the case
 *                                           ends if there is none; STATEMENT is repeated meanwhile
 *     hold a->* *->a [write]; pass; deliver; run 20ms
 */
import type { CellId, ServerId } from '../../base/ids.ts';
import type { LeaseOrder, LeaseOutcome } from '../../lease/actions.ts';
import type { LeaseHost } from '../../lease/host.ts';
import type { LeaseMessage } from '../../lease/messages.ts';
import type { LeaseAlgorithm } from '../../lease/parameters.ts';
import type { VoterSet } from '../../lease/voters.ts';
import { ClaimServers } from './claim-servers.ts';
import { CHANGE_MS_MAX, type ClaimVoters } from './claim-voters.ts';
import type { LeaseWords } from './lease-words.ts';
import { CLOCK_SKEW_MAX_MS, LEASE_MS, RECOVERY_MS } from './lease-world.ts';
import { type Cases, casesRead, type Statements, type Step } from './script-cases.ts';
import { Violation, violationOf } from './violation.ts';

const MEMBERS = ['a', 'b', 'c'] as ServerId[];
const CELL = 1 as CellId;
const INTERVAL_MS = LEASE_MS - CLOCK_SKEW_MAX_MS;
const PATIENCE_MS = 500;
const OUTCOMES = ['granted', 'taken', 'free', 'seen', 'any'] as const;

interface ClaimOptions {
  readonly algorithm?: LeaseAlgorithm;
  /** The first voters, if they change. */
  readonly voters?: readonly ServerId[];
}

class ClaimStage extends ClaimServers {
  readonly #outcomes = new Map<number, LeaseOutcome>();
  readonly #algorithm: LeaseAlgorithm;
  /** The last granted lease. */
  #held = { session: 0, token: 0, untilMs: 0 };
  #asked = 0;

  constructor({ algorithm = 'flease', voters }: ClaimOptions) {
    super({ algorithm }, { seed: 1, servers: voters === undefined ? 4 : 5 });
    this.#algorithm = algorithm;
    if (voters !== undefined) this.changeVoters({ servers: voters, perCell: 3 });
    this.world.start();
    this.world.runFor(RECOVERY_MS + INTERVAL_MS);
    // A little after the begin of a ballot interval.
    this.world.runFor(2 * INTERVAL_MS - (this.world.nowMs % INTERVAL_MS) + 5);
  }

  /** Sends an order and waits for its outcome. */
  ask(server: ServerId, order: LeaseOrder): LeaseOutcome['kind'] {
    const askedMs = this.world.nowMs;
    const ask = this.asking(server, order);
    this.world.runFor(PATIENCE_MS + 1, () => this.#outcomes.has(ask));
    const outcome = this.#outcomes.get(ask) ?? { kind: 'unknown' };
    if (outcome.kind === 'granted' && 'spanMs' in order)
      this.#granted(order.session, outcome.lease.token, askedMs + order.spanMs);
    else if (order.kind === 'release' && outcome.kind === 'free') this.#held.untilMs = -Infinity;
    return outcome.kind;
  }

  #granted(session: number, token: number, untilMs: number): void {
    const held = this.#held;
    if (session === held.session) {
      if (token !== held.token) throw new Violation('A refresh keeps its token');
      held.untilMs = Math.max(held.untilMs, untilMs);
      return;
    }
    if (this.world.nowMs < held.untilMs) throw new Violation('Two sessions hold one cell');
    if (token <= held.token && this.#algorithm === 'flease')
      throw new Violation(`Token ${token} follows ${held.token}`);
    this.#held = { session, token, untilMs };
  }

  /** Sends an order. @returns its number */
  asking(server: ServerId, order: LeaseOrder): number {
    const ask = ++this.#asked;
    this.world.call(server, () => {
      const deadlineMs = this.world.clockMs(server) + PATIENCE_MS;
      this.order(server, { ask, cell: CELL, order, deadlineMs });
    });
    return ask;
  }

  /** The outcome of the last order, or null if it has not ended. */
  get outcome(): LeaseOutcome['kind'] | null {
    return this.#outcomes.get(this.#asked)?.kind ?? null;
  }

  /** Begins to change the voters. */
  change(servers: readonly ServerId[]): void {
    this.#changing.step({ servers, perCell: 3 } satisfies VoterSet);
  }

  /**
   * Informs these servers of the voters, again and again, until there is a new view or the time is over.
   *
   * @param meanwhile is called each time
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

// The language -----------------------------------------------------------------------------------

function orderParse(words: LeaseWords, kind: LeaseOrder['kind']): LeaseOrder {
  if (kind === 'query') return { kind };
  const session = words.natural('a session');
  if (kind === 'release') return { kind, session };
  const spanMs = /^\d+m?s$/.test(words.peek()) ? words.durationMs('how long') : LEASE_MS;
  return kind === 'acquire' ? { kind, session, spanMs, note: '' } : { kind, session, spanMs, note: null };
}

const order =
  (kind: LeaseOrder['kind']) =>
  (words: LeaseWords): Step<ClaimStage> => {
    const [server, asked] = [words.server(), orderParse(words, kind)];
    const wanted = words.oneOf('the outcome', OUTCOMES);
    return (stage) => {
      const outcome = stage.ask(server, asked);
      if (wanted !== 'any' && outcome !== wanted) throw new Violation(`${words.place}: ${outcome}`);
    };
  };

const STATEMENTS: Statements<Step<ClaimStage>> = {
  acquire: order('acquire'),
  refresh: order('refresh'),
  release: order('release'),
  look: order('query'),
  begin(words) {
    const server = words.server();
    const asked = orderParse(words, words.oneOf('an order', ['acquire', 'refresh'] as const));
    return (stage) => stage.asking(server, asked);
  },
  not(words) {
    const kind = words.oneOf('the outcome', OUTCOMES);
    return ({ outcome }) => {
      if (outcome === kind) throw new Violation(`${words.place}: it is`);
    };
  },
  change(words) {
    const servers = words.group();
    return (stage) => stage.change(servers);
  },
  changed(words) {
    const informed = words.group();
    const mayEnd = words.skip('or') && words.skip('end');
    const meanwhile = words.skip('while') ? STATEMENTS[words.next('a statement')]?.(words) : undefined;
    return (stage) => {
      if (stage.changed(informed, () => meanwhile?.(stage))) return null;
      if (mayEnd) return 'end';
      throw new Violation('A change of voters ends');
    };
  },
  hold(words) {
    const [links, kinds] = [words.links(), words.kinds()];
    return ({ world }) => {
      world.intercept = ({ from, to, message }) => {
        const kind = message.messages[0]?.kind;
        const isMeant = kind !== undefined && (kinds.length === 0 || kinds.includes(kind));
        return isMeant && links.some(([a, b]) => a === from && b === to) ? 'hold' : 'pass';
      };
    };
  },
  pass:
    () =>
    ({ world }) => {
      world.intercept = null;
    },
  deliver:
    () =>
    ({ world }) =>
      world.deliver(),
  run(words) {
    const forMs = words.durationMs('how long');
    return ({ world }) => world.runFor(forMs);
  },
};

const OPTIONS: Statements<ClaimOptions> = {
  algorithm: (words) => ({ algorithm: words.oneOf('the algorithm', ['flease', 'paxoslease']) }),
  voters: (words) => ({ voters: words.group() }),
};

export const CLAIM_CASES: Cases = casesRead(
  'claim/cases.txt',
  OPTIONS,
  STATEMENTS,
  (options, play) => () => violationOf(() => play(new ClaimStage(options))),
);
