/**
 * Observers of the lease layer, which know more than any server can: true time, all clocks, all registers.
 *
 * L1 exclusion: at no moment do two lives satisfy `owns` for one cell.
 * L2 agreement: once a lease is decided, no server decides one of another holder while it is valid on any clock; the
 * decided ends of one holder never decrease.
 * L3 ballots: those of one life strictly increase, and name that life.
 * L4 amnesia: at the end of the recovery wait, each forgotten lease has ended on every clock.
 * L5 silence: a server sends nothing during that wait.
 *
 * They check only what a step has touched, as they run after every step.
 */
import type { CellId, Incarnation, ServerId } from '../../base/ids.ts';
import type { Ballot } from '../../lease/ballot.ts';
import type { CellState } from '../../lease/cell.ts';
import type { LeaseMessage } from '../../lease/messages.ts';
import { Violation } from './violation.ts';

/** One life of one server. */
interface Life {
  readonly id: number;
  readonly server: ServerId;
  readonly incarnation: Incarnation;
  /** The end of each attempt's lease by its ballot: what a promise may still allow. */
  readonly attemptEnds: Map<number, number>;
  silent: boolean;
  /** Largest ballot of this life in a READ, by cell. */
  readonly ballots: Map<CellId, Ballot>;
}

/** What one server accepted or promised in its present life, and what it forgot with earlier ones. */
interface Memory {
  life: Life;
  /** The latest end of the leases of each life, by `endingKey`. */
  accepted: Map<number, number>;
  readonly forgotten: Map<number, number>;
}

/** The leases that were decided for one life of a server. */
interface Decided {
  readonly life: Life;
  untilMs: number;
  /** Leases up to this end were released: their holder does not act on them. */
  releasedMs: number;
}

const LIVES_MAX = 2 ** 24;
const ROUNDS_MAX = 2 ** 24;

export interface ObserverOptions {
  readonly ids: readonly ServerId[];
  readonly leaseMs: number;
  /** Clocks are out of bounds: exclusion is not demanded; everything else is. */
  readonly clocksBroken: boolean;
  /** Whether ends of leases are moments of one common time; otherwise each server counts spans. */
  readonly commonTime: boolean;
  readonly clockMs: (server: ServerId) => number;
  readonly owns: (server: ServerId, cell: CellId) => boolean;
}

export class LeaseObservers {
  readonly counts = { held: 0, reads: 0, takeovers: 0 };
  readonly #options: ObserverOptions;
  readonly #lives: Life[] = [];
  readonly #byIncarnation = new Map<Incarnation, Life>();
  readonly #memories = new Map<ServerId, Memory>();
  readonly #decided = new Map<CellId, Decided[]>();
  readonly #lastHolder = new Map<CellId, Incarnation>();

  constructor(options: ObserverOptions) {
    this.#options = options;
  }

  started(server: ServerId, incarnation: Incarnation): void {
    const id = this.#lives.length;
    const life: Life = {
      id,
      server,
      incarnation,
      attemptEnds: new Map(),
      silent: true,
      ballots: new Map(),
    };
    this.#lives.push(life);
    this.#byIncarnation.set(incarnation, life);
    const memory = this.#memories.get(server);
    if (memory === undefined) {
      this.#memories.set(server, { life, accepted: new Map(), forgotten: new Map() });
      return;
    }
    for (const [key, untilMs] of memory.accepted) {
      memory.forgotten.set(key, Math.max(untilMs, memory.forgotten.get(key) ?? -Infinity));
    }
    memory.accepted = new Map();
    memory.life = life;
  }

  /** Called before every step. `silentMs`: the rest of the server's recovery wait. */
  stepping(server: ServerId, silentMs: number): void {
    const memory = this.#memory(server);
    if (!memory.life.silent || silentMs > 0) return;
    memory.life.silent = false;
    const { clocksBroken, commonTime, ids, clockMs } = this.#options;
    if (!clocksBroken && commonTime) {
      for (const id of ids) {
        const nowMs = clockMs(id);
        for (const [key, untilMs] of memory.forgotten) {
          if (untilMs > nowMs) this.#demandReleased(server, key, untilMs);
        }
      }
    }
    memory.forgotten.clear();
  }

  /** Called after every step, for each cell that it touched. */
  touched(server: ServerId, cell: CellId, before: CellState | null, after: CellState | null): void {
    if (after === null) return;
    const memory = this.#memory(server);
    const { attempt, register } = after;
    if (this.#options.commonTime && !this.#options.clocksBroken) {
      const last = before?.attempt?.ballot;
      if (
        attempt !== null &&
        (last?.round !== attempt.ballot.round || last.interval !== attempt.ballot.interval)
      ) {
        const { ballot, startedMs } = attempt;
        memory.life.attemptEnds.set(ballotKey(ballot), startedMs + this.#options.leaseMs);
      }
      const { lease, readBallot } = register;
      if (lease !== null && lease !== before?.register.lease) {
        this.#accepted(memory, cell, this.#life(lease.incarnation), lease.untilMs);
      }
      if (readBallot.round > 0 && readBallot !== before?.register.readBallot) {
        const life = this.#life(readBallot.incarnation);
        const endMs = life.attemptEnds.get(ballotKey(readBallot));
        if (endMs !== undefined) this.#accepted(memory, cell, life, endMs);
      }
    }
    // A holder reports its lease when it begins, and is checked then; this is for a lease without such a report.
    if (after.own !== null && before?.own?.untilMs !== after.own.untilMs) this.#demandExclusion(server, cell);
  }

  sent(server: ServerId, message: LeaseMessage, silentMs: number): void {
    const { life } = this.#memory(server);
    if (silentMs > 0 || life.silent) {
      throw new Violation(`L5: ${server} says ${message.kind} during its silence`);
    }
    if (message.kind !== 'read') return;
    this.counts.reads++;
    const { ballot, cell } = message;
    if (ballot.server !== server || ballot.incarnation !== life.incarnation) {
      throw new Violation(`L3: ${server} uses a ballot of ${ballot.server}`);
    }
    const last = life.ballots.get(cell);
    if (last === ballot) return;
    life.ballots.set(cell, ballot);
    if (last === undefined) return;
    // Compared here, and not by the code under test.
    const order = ballot.interval - last.interval || ballot.round - last.round;
    if (order < 0) throw new Violation(`L3: a ballot of ${server} goes back`);
  }

  held(server: ServerId, cell: CellId, incarnation: Incarnation, untilMs: number): void {
    this.counts.held++;
    const last = this.#lastHolder.get(cell);
    if (last !== undefined && last !== incarnation) this.counts.takeovers++;
    this.#lastHolder.set(cell, incarnation);
    this.decided(cell, incarnation, untilMs);
    this.#demandExclusion(server, cell);
  }

  /** A server reports that a lease of this life was decided. */
  decided(cell: CellId, incarnation: Incarnation, untilMs: number): void {
    if (this.#options.clocksBroken || !this.#options.commonTime) return;
    const life = this.#life(incarnation);
    let all = this.#decided.get(cell);
    if (all === undefined) {
      all = [];
      this.#decided.set(cell, all);
    }
    const mine = all.find((known) => known.life === life);
    if (mine === undefined) {
      all.push({ life, untilMs, releasedMs: -Infinity });
    } else {
      mine.untilMs = Math.max(mine.untilMs, untilMs);
      if (untilMs <= mine.releasedMs) return;
    }
    if (all.length === 1) return;
    // A report of an expired lease contradicts nothing.
    const lowestMs = this.#lowestMs();
    if (untilMs < lowestMs) return;
    for (const other of all) {
      if (other.life === life || other.untilMs <= other.releasedMs || other.untilMs < lowestMs) continue;
      const { server } = other.life;
      throw new Violation(`L2: cell ${cell} is decided for ${life.server}, though ${server} has it`);
    }
  }

  /** After a RELEASE nothing that this life began before counts any more. */
  released(server: ServerId, cell: CellId, nowMs: number): void {
    const { life } = this.#memory(server);
    const decided = this.#decided.get(cell)?.find((known) => known.life === life);
    if (decided !== undefined) decided.releasedMs = nowMs + this.#options.leaseMs;
  }

  #demandExclusion(server: ServerId, cell: CellId): void {
    if (this.#options.clocksBroken) return;
    const { ids, owns } = this.#options;
    for (const other of ids) {
      if (other === server || !owns(other, cell) || !owns(server, cell)) continue;
      const [first, second] = [server, other].sort();
      throw new Violation(`L1: cell ${cell} is held by ${first} and ${second}`);
    }
  }

  #demandReleased(server: ServerId, key: number, untilMs: number): void {
    const cell = Math.floor(key / LIVES_MAX) as CellId;
    const life = this.#lives[key % LIVES_MAX] as Life;
    const decided = this.#decided.get(cell)?.find((known) => known.life === life);
    if (decided !== undefined && untilMs <= decided.releasedMs) return;
    throw new Violation(`L4: ${server} has forgotten that ${life.server} may hold ${cell} until ${untilMs}`);
  }

  #accepted(memory: Memory, cell: CellId, life: Life, untilMs: number): void {
    const key = cell * LIVES_MAX + life.id;
    const known = memory.accepted.get(key);
    if (known === undefined || known < untilMs) memory.accepted.set(key, untilMs);
  }

  #lowestMs(): number {
    let lowestMs = Infinity;
    for (const id of this.#options.ids) lowestMs = Math.min(lowestMs, this.#options.clockMs(id));
    return lowestMs;
  }

  #memory(server: ServerId): Memory {
    const memory = this.#memories.get(server);
    if (memory === undefined) throw new Error(`Server ${server} has not been started`);
    return memory;
  }

  #life(incarnation: Incarnation): Life {
    const life = this.#byIncarnation.get(incarnation);
    if (life === undefined) throw new Violation('A ballot or a lease names an unknown life');
    return life;
  }
}

function ballotKey(k: Ballot): number {
  return k.interval * ROUNDS_MAX + k.round;
}
