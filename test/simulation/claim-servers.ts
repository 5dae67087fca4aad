/** Servers that decide leases of clients, in a simulation: real lease hosts, and their voters. */
import type { CellId, Incarnation, ServerId } from '../../base/ids.ts';
import type { LeaseEvent, LeaseOutcome } from '../../lease/actions.ts';
import type { LeaseFrame } from '../../lease/codec.ts';
import { LeaseHost } from '../../lease/host.ts';
import type { LeaseMessage } from '../../lease/messages.ts';
import type { LeaseAlgorithm } from '../../lease/parameters.ts';
import type { VoterSet } from '../../lease/voters.ts';
import { ClaimVoters } from './claim-voters.ts';
import { TIMING } from './lease-world.ts';
import { type Process, World, type WorldOptions } from './world.ts';

type AskEvent = Extract<LeaseEvent, { kind: 'ask' }>;

export abstract class ClaimServers {
  readonly world: World<LeaseFrame>;
  /** Null if voters do not change. */
  protected voters: ClaimVoters | null = null;
  readonly #how: { readonly algorithm: LeaseAlgorithm; readonly thrifty?: boolean };
  readonly #hosts = new Map<ServerId, LeaseHost>();

  constructor(
    how: { readonly algorithm: LeaseAlgorithm; readonly thrifty?: boolean },
    world: Omit<WorldOptions<LeaseFrame>, 'boot'>,
  ) {
    this.#how = how;
    const boot = (server: ServerId, incarnation: Incarnation) => this.#boot(server, incarnation);
    this.world = new World<LeaseFrame>({ ...world, boot });
  }

  /** The voters of a cell, if they do not change. */
  protected abstract members(cell: CellId): readonly ServerId[];
  protected abstract answered(ask: number, outcome: LeaseOutcome): void;
  /** Sends messages of one step. */
  protected abstract send(host: LeaseHost, from: ServerId, to: ServerId, messages: LeaseMessage[]): void;

  /** Makes the voters changeable, with the first ones. */
  protected changeVoters(first: VoterSet): void {
    const { world } = this;
    this.voters = new ClaimVoters(first, {
      world,
      standing: (server) => {
        const clockMs = world.clockMs(server);
        return { clockMs, silentMs: this.#hosts.get(server)?.recoveringMs(clockMs) ?? Infinity };
      },
      adopted: (server, { number: view }) => this.#step(server, { kind: 'voters', view }),
    });
  }

  protected order(server: ServerId, order: Pick<AskEvent, 'ask' | 'cell' | 'order' | 'deadlineMs'>): void {
    const { cell } = order;
    const voters = this.voters?.votersOf(server, cell) ?? { view: 1, members: this.members(cell) };
    this.#step(server, { kind: 'ask', ...order, ...voters });
  }

  #boot(server: ServerId, incarnation: Incarnation): Process<LeaseFrame> {
    const view = this.voters === null ? {} : { view: this.voters.of(server).number };
    const config = { self: server, incarnation, ...this.#how, ...view, ...TIMING };
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
    const outgoing = new Map<ServerId, LeaseMessage[]>();
    for (const action of host.step(event, this.world.clockMs(server))) {
      if (action.kind === 'answered') this.answered(action.ask, action.outcome);
      if (action.kind !== 'send') continue;
      const messages = outgoing.get(action.to);
      if (messages === undefined) outgoing.set(action.to, [action.message]);
      else messages.push(action.message);
    }
    for (const [to, messages] of outgoing) this.send(host, server, to, messages);
  }
}
