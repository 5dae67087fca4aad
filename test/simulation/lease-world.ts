/** Real lease hosts in a simulated world; observers check every step. `lease-observers.ts` has their rules. */
import type { CellId, Incarnation, ServerId } from '../../base/ids.ts';
import type { LeaseAction, LeaseEvent, LeaseMark } from '../../lease/actions.ts';
import type { CellState } from '../../lease/cell.ts';
import { decodeLeaseFrame, encodeLeaseFrame, type LeaseFrame } from '../../lease/codec.ts';
import { LeaseHost } from '../../lease/host.ts';
import { assertCellStep } from '../../lease/invariants.ts';
import type { LeaseMessage } from '../../lease/messages.ts';
import type { LeaseAlgorithm } from '../../lease/parameters.ts';
import { type LeaseParameters, leaseParameters } from '../../lease/parameters.ts';
import { LeaseObservers } from './lease-observers.ts';
import { leaseMessageText, untilText } from './lease-text.ts';
import { type CellView, isVoter, ViewBook } from './lease-views.ts';
import { CALM, type Envelope, type Faults, type Process, World } from './world.ts';

/** Short leases with the largest allowed skew: boundaries are met often. */
export const LEASE_MS = 1000;
export const CLOCK_SKEW_MAX_MS = 100;
export const TIMING = { leaseMs: LEASE_MS, clockSkewMaxMs: CLOCK_SKEW_MAX_MS };
export const RECOVERY_MS = LEASE_MS + 2 * CLOCK_SKEW_MAX_MS;

export interface LeaseWorldOptions {
  readonly seed: number;
  readonly servers: number;
  readonly algorithm?: LeaseAlgorithm;
  readonly cells?: number;
  readonly faults?: Faults;
  readonly verbose?: boolean;
  /** Only as many voters are asked as needed, as in production. Scripts need all requests. */
  readonly thrifty?: boolean;
  /** Each frame is encoded and decoded. */
  readonly encoded?: boolean;
  /** While `news` is false all LEARN messages are lost: servers know only what they ask for. */
  readonly news?: boolean;
  /** Clocks are out of bounds: exclusion is not demanded; everything else is. */
  readonly clocksBroken?: boolean;
  /** The first number of members of cells, which change then. Absent: all servers, for good. */
  readonly firstMembers?: number;
}

/** One server, in its present life. */
interface Seat {
  readonly server: ServerId;
  host: LeaseHost | null;
  parameters: LeaseParameters;
  /** Cells after the last step that touched them, by `cell − 1`. */
  states: (CellState | null)[];
}

export class LeaseWorld {
  readonly world: World<LeaseFrame>;
  readonly cells: readonly CellId[];
  readonly marks = new Set<LeaseMark>();
  readonly observers: LeaseObservers;
  /** How often each mark was traced. */
  readonly markCounts = new Map<LeaseMark, number>();

  readonly #seats: Seat[] = [];
  readonly #wanted = new Set<string>();
  readonly views: ViewBook;
  readonly #options: LeaseWorldOptions;
  readonly #verbose: boolean;
  #news: boolean;
  /** Cells of the present step, and the number of the last step that touched each. */
  readonly #touched: CellId[] = [];
  readonly #touchedBy: number[];
  #steps = 0;

  constructor(options: LeaseWorldOptions) {
    this.cells = Array.from({ length: options.cells ?? 1 }, (_, i) => (i + 1) as CellId);
    this.#touchedBy = this.cells.map(() => 0);
    this.#options = options;
    this.#verbose = options.verbose ?? false;
    this.#news = options.news ?? true;
    this.world = new World<LeaseFrame>({
      seed: options.seed,
      servers: options.servers,
      faults: options.faults ?? CALM,
      verbose: this.#verbose,
      describe: ({ messages }) => messages.map(leaseMessageText).join(', '),
      boot: (server, incarnation) => this.#boot(server, incarnation),
      observe: (server) => {
        const seat = this.#seat(server);
        if (!this.world.isUp(server)) seat.host = null;
      },
      aim: () => this.holders(this.cells[0] as CellId)[0] ?? null,
    });
    const members = this.world.ids.slice(0, options.firstMembers ?? options.servers);
    this.views = new ViewBook(this.cells, members, options.firstMembers !== undefined);
    this.observers = new LeaseObservers({
      ids: this.world.ids,
      leaseMs: LEASE_MS,
      clocksBroken: options.clocksBroken ?? false,
      commonTime: options.algorithm !== 'paxoslease',
      clockMs: (server) => this.world.clockMs(server),
      owns: (server, cell) => this.owns(server, cell),
    });
  }

  // What scripts do ------------------------------------------------------------------------------

  /** The server wants the cell, in this life and the next ones. A server that is no member does nothing. */
  open(server: ServerId, cell: CellId, handicapMs = 0): void {
    const view = this.views.cell(cell).of(server);
    if (view === null) return;
    this.#wanted.add(`${server} ${cell}`);
    this.#order(server, { kind: 'open', cell, ...view, handicapMs });
  }

  /** Informs the server of the members, unless that is impossible; see `lease-views.ts`. */
  tell(server: ServerId, cell: CellId, view: CellView): void {
    if (!this.world.isUp(server) || this.world.isPaused(server)) return;
    if (!this.views.cell(cell).adopt(server, view)) return;
    const sides = [view.members, view.joint ?? []].map((side) => side.join('')).join(' ');
    if (this.#verbose) this.world.note(server, `is told of view ${view.view} of cell ${cell}: ${sides}`);
    this.#wanted.add(`${server} ${cell}`);
    this.#call(server, { kind: 'open', cell, ...view, handicapMs: 0 });
  }

  /** Informs all voters of the newest view; servers that do not vote close the cell. */
  settleViews(): void {
    for (const cell of this.cells) {
      const { latest } = this.views.cell(cell);
      for (const id of this.world.ids) {
        if (isVoter(latest, id)) this.tell(id, cell, latest);
        else this.#forget(id, cell);
      }
    }
  }

  #forget(server: ServerId, cell: CellId): void {
    this.#wanted.delete(`${server} ${cell}`);
    this.#call(server, { kind: 'close', cell });
  }

  /** If members change, an earlier member keeps its register: it must refuse proposers with an older view. */
  close(server: ServerId, cell: CellId): void {
    if (this.views.changing) return;
    this.#wanted.delete(`${server} ${cell}`);
    this.#order(server, { kind: 'close', cell });
  }

  release(server: ServerId, cell: CellId): void {
    this.#order(server, { kind: 'release', cell });
  }

  /** Servers that may act as holder at this moment, including paused ones. */
  holders(cell: CellId): ServerId[] {
    return this.world.ids.filter((id) => this.owns(id, cell));
  }

  owns(server: ServerId, cell: CellId): boolean {
    const host = this.#seats[server.charCodeAt(0) - FIRST_LETTER]?.host ?? null;
    return host?.owns(cell, this.world.clockMs(server)) ?? false;
  }

  host(server: ServerId): LeaseHost | null {
    return this.#seat(server).host;
  }

  /** From now on LEARN messages arrive like others. */
  startNews(): void {
    this.#news = true;
  }

  // Hosts ----------------------------------------------------------------------------------------

  #seat(server: ServerId): Seat {
    const seat = this.#seats[server.charCodeAt(0) - FIRST_LETTER];
    if (seat === undefined) throw new Error(`Server ${server} has not been started`);
    return seat;
  }

  #boot(server: ServerId, incarnation: Incarnation): Process<LeaseFrame> {
    const { algorithm = 'flease', thrifty = false } = this.#options;
    const config = { self: server, incarnation, algorithm, thrifty, ...TIMING };
    const host = new LeaseHost(config, this.world.clockMs(server));
    this.#seats[server.charCodeAt(0) - FIRST_LETTER] = {
      server,
      host,
      parameters: leaseParameters(config),
      states: this.cells.map(() => null),
    };
    const seat = this.#seat(server);
    this.observers.started(server, incarnation);
    for (const cell of this.cells) {
      if (!this.#wanted.has(`${server} ${cell}`)) continue;
      const view = this.views.cell(cell).of(server);
      if (view !== null) this.#step(seat, { kind: 'open', cell, ...view, handicapMs: 0 });
    }
    return {
      message: (from, { envelope, messages }) =>
        this.#step(seat, { kind: 'frame', from, envelope, messages }),
      tick: () => this.#step(seat, TICK),
      nextWakeMs: () => host.nextWakeMs(),
    };
  }

  #call(server: ServerId, event: LeaseEvent): void {
    this.world.call(server, () => this.#step(this.#seat(server), event));
  }

  /** Executes a client's call. */
  #order(server: ServerId, event: Extract<LeaseEvent, { kind: 'open' | 'close' | 'release' }>): void {
    if (this.#verbose) this.world.note(server, `has to ${event.kind} cell ${event.cell}`);
    this.#call(server, event);
  }

  #step(seat: Seat, event: LeaseEvent): void {
    const { server, host, parameters, states } = seat;
    if (host === null) throw new Error(`Server ${server} is down`);
    const nowMs = this.world.clockMs(server);
    const silentMs = host.recoveringMs(nowMs);
    this.observers.stepping(server, silentMs);
    const actions = host.step(event, nowMs);
    this.#touch(event, actions);
    for (const cell of this.#touched) {
      const before = states[cell - 1] ?? null;
      const after = host.inspect(cell);
      states[cell - 1] = after;
      assertCellStep(before, after, nowMs, parameters);
      this.observers.touched(server, cell, before, after);
    }
    this.#perform(seat, host, event, actions, nowMs, silentMs);
  }

  /** Finds the cells that a step may have changed. */
  #touch(event: LeaseEvent, actions: readonly LeaseAction[]): void {
    this.#steps++;
    this.#touched.length = 0;
    if (event.kind === 'frame') for (const { cell } of event.messages) this.#touchCell(cell);
    else if ('cell' in event) this.#touchCell(event.cell);
    for (const action of actions) {
      if (action.kind === 'send') this.#touchCell(action.message.cell);
      else if (action.kind !== 'answered') this.#touchCell(action.cell);
    }
  }

  #touchCell(cell: CellId): void {
    const at = cell - 1;
    if (at < 0 || at >= this.#touchedBy.length || this.#touchedBy[at] === this.#steps) return;
    this.#touchedBy[at] = this.#steps;
    this.#touched.push(cell);
  }

  #perform(
    seat: Seat,
    host: LeaseHost,
    event: LeaseEvent,
    actions: readonly LeaseAction[],
    nowMs: number,
    silentMs: number,
  ): void {
    const { server } = seat;
    const { incarnation } = seat.parameters;
    const outgoing: (LeaseMessage[] | undefined)[] = [];
    for (const action of actions) {
      switch (action.kind) {
        case 'send': {
          this.observers.sent(server, action.message, silentMs);
          if (!this.#news && action.message.kind === 'learn') break;
          const to = action.to.charCodeAt(0) - FIRST_LETTER;
          const messages = outgoing[to];
          if (messages === undefined) outgoing[to] = [action.message];
          else messages.push(action.message);
          break;
        }
        case 'held':
          if (this.#verbose) {
            this.world.note(server, `holds cell ${action.cell} until ${untilText(action.untilMs)}`);
          }
          this.observers.held(server, action.cell, incarnation, action.untilMs);
          break;
        case 'learned':
          this.observers.decided(action.cell, action.incarnation, action.untilMs);
          break;
        case 'lost':
          if (this.#verbose) this.world.note(server, `holds cell ${action.cell} no longer`);
          if (event.kind === 'release') this.observers.released(server, action.cell, nowMs);
          break;
        case 'trace':
          this.marks.add(action.mark);
          if (action.mark === 'decided' || action.mark === 'renewed') {
            this.views.cell(action.cell).decided(server);
          }
          this.markCounts.set(action.mark, (this.markCounts.get(action.mark) ?? 0) + 1);
          break;
        case 'answered':
        case 'claimed':
          break;
      }
    }
    for (let to = 0; to < outgoing.length; to++) {
      const messages = outgoing[to];
      if (messages !== undefined) this.#send(host, server, this.world.ids[to] as ServerId, messages, nowMs);
    }
  }

  #send(
    host: LeaseHost,
    from: ServerId,
    to: ServerId,
    messages: readonly LeaseMessage[],
    nowMs: number,
  ): void {
    const envelope = host.envelope(to, nowMs);
    if (this.#options.encoded === true) {
      this.world.send(from, to, decodeLeaseFrame(encodeLeaseFrame(envelope, messages)));
    } else if (this.world.intercept === null) {
      this.world.send(from, to, { envelope, messages });
    } else {
      // Scripts hold and deliver single messages.
      for (const message of messages) this.world.send(from, to, { envelope, messages: [message] });
    }
  }
}

const FIRST_LETTER = 97;

const TICK: LeaseEvent = { kind: 'tick' };

/** The message of a frame in a script, where each frame has one. */
export function messageOf(envelope: Envelope<LeaseFrame>): LeaseMessage {
  const message = envelope.message.messages[0];
  if (message === undefined) throw new Error('A frame in a script has one message');
  return message;
}
