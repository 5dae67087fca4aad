/**
 * How many lease rounds a second one core plays: real hosts, a calm network, many cells, all messages of
 * one step to one receiver in one frame, as the server's driver sends them. Exclusion is watched.
 */
import type { CellId, Incarnation, ServerId } from '../../base/ids.ts';
import type { LeaseAction, LeaseEvent } from '../../lease/actions.ts';
import type { LeaseFrame } from '../../lease/codec.ts';
import { LeaseHost } from '../../lease/host.ts';
import type { LeaseMessage } from '../../lease/messages.ts';
import { LEASE_MS, RECOVERY_MS, TIMING } from './lease-world.ts';
import { Violation } from './violation.ts';
import { type Process, World } from './world.ts';

export interface Throughput {
  /** Attempts whose READ and WRITE went to all members and that ended with a lease acquired or renewed. */
  readonly rounds: number;
  readonly messages: number;
  readonly frames: number;
  readonly tookMs: number;
  readonly simulatedMs: number;
}

const TICK: LeaseEvent = { kind: 'tick' };
const FIRST_LETTER = 97;

class Bench {
  readonly world: World<LeaseFrame>;
  readonly #hosts: LeaseHost[] = [];
  readonly #cells: number;
  rounds = 0;
  messages = 0;

  constructor(servers: number, cells: number) {
    this.#cells = cells;
    this.world = new World<LeaseFrame>({
      seed: 1,
      servers,
      boot: (server, incarnation) => this.#boot(server, incarnation),
    });
    this.world.start();
    this.world.runFor(RECOVERY_MS + LEASE_MS);
  }

  /** Opens the cells, each at one server, spread over a lease as files of different users would be. */
  open(): void {
    const { ids } = this.world;
    for (let cell = 1; cell <= this.#cells; cell++) {
      const index = cell % ids.length;
      const server = ids[index] as ServerId;
      const atMs = this.world.nowMs + (cell / this.#cells) * LEASE_MS;
      this.world.at(atMs, () =>
        this.world.call(server, () =>
          this.#step(index, {
            kind: 'open',
            cell: cell as CellId,
            view: 1,
            members: ids,
            handicapMs: 0,
          }),
        ),
      );
    }
    this.world.runFor(2 * LEASE_MS);
  }

  #boot(server: ServerId, incarnation: Incarnation): Process<LeaseFrame> {
    const index = server.charCodeAt(0) - FIRST_LETTER;
    const host = new LeaseHost({ self: server, incarnation, ...TIMING }, this.world.clockMs(server));
    this.#hosts[index] = host;
    return {
      message: (from, { envelope, messages }) =>
        this.#step(index, { kind: 'frame', from, envelope, messages }),
      tick: () => this.#step(index, TICK),
      nextWakeMs: () => host.nextWakeMs(),
    };
  }

  #step(index: number, event: LeaseEvent): void {
    const server = this.world.ids[index] as ServerId;
    const host = this.#hosts[index] as LeaseHost;
    const nowMs = this.world.clockMs(server);
    const outgoing = this.#group(index, host.step(event, nowMs));
    for (let to = 0; to < outgoing.length; to++) {
      const messages = outgoing[to];
      if (messages === undefined) continue;
      const receiver = this.world.ids[to] as ServerId;
      this.world.send(server, receiver, { envelope: host.envelope(receiver, nowMs), messages });
    }
  }

  #group(index: number, actions: readonly LeaseAction[]): (LeaseMessage[] | undefined)[] {
    const outgoing: (LeaseMessage[] | undefined)[] = [];
    for (const action of actions) {
      if (action.kind === 'send') {
        this.messages++;
        const to = action.to.charCodeAt(0) - FIRST_LETTER;
        const messages = outgoing[to];
        if (messages === undefined) outgoing[to] = [action.message];
        else messages.push(action.message);
      } else if (action.kind === 'held') {
        this.rounds++;
        this.#demandExclusion(index, action.cell);
      }
    }
    return outgoing;
  }

  #demandExclusion(index: number, cell: CellId): void {
    for (let other = 0; other < this.#hosts.length; other++) {
      const host = this.#hosts[other] as LeaseHost;
      const clockMs = this.world.clockMs(this.world.ids[other] as ServerId);
      if (host.owns(cell, clockMs) !== (other === index)) {
        throw new Violation(`L1: cell ${cell} is not held by its holder alone`);
      }
    }
  }
}

/** Measures for `wallMs` of real time, after everything is warm. */
export function throughputMeasure(servers: number, cells: number, wallMs: number): Throughput {
  const bench = new Bench(servers, cells);
  bench.open();
  const { world } = bench;
  const [rounds, messages, frames, nowMs] = [
    bench.rounds,
    bench.messages,
    world.counts.messages,
    world.nowMs,
  ];
  const beganMs = performance.now();
  while (performance.now() - beganMs < wallMs) world.runFor(LEASE_MS / 10);
  return {
    rounds: bench.rounds - rounds,
    messages: bench.messages - messages,
    frames: world.counts.messages - frames,
    tookMs: performance.now() - beganMs,
    simulatedMs: world.nowMs - nowMs,
  };
}

/** @returns the exit code */
export function throughputPrint(): number {
  console.log('servers    cells   rounds/s  messages/s  messages/frame  messages/round');
  for (const [servers, cells] of [
    [3, 3000],
    [3, 100_000],
    [5, 100_000],
  ] as const) {
    const { rounds, messages, frames, tookMs } = throughputMeasure(servers, cells, 5000);
    const columns = [
      String(servers).padStart(7),
      String(cells).padStart(8),
      Math.round((rounds * 1000) / tookMs)
        .toLocaleString('en')
        .padStart(10),
      Math.round((messages * 1000) / tookMs)
        .toLocaleString('en')
        .padStart(11),
      (messages / frames).toFixed(1).padStart(15),
      (messages / rounds).toFixed(1).padStart(15),
    ];
    console.log(columns.join(' '));
  }
  return 0;
}
