/**
 * `npm run bench:growth [-- --quick]`: the load of one server as a cluster grows: cells of three members each, at
 * random among all servers, a thousand cells per server. No server may have more load in a cluster of a thousand than
 * in one of ten, and a lease may not cost more messages. The network loses nothing; mutual exclusion is checked by
 * counting.
 */
import type { CellId, Incarnation, ServerId } from '../../base/ids.ts';
import { Prng } from '../../base/prng.ts';
import type { LeaseAction, LeaseEvent } from '../../lease/actions.ts';
import { LeaseHost } from '../../lease/host.ts';
import type { LeaseEnvelope, LeaseMessage } from '../../lease/messages.ts';

const MEMBERS = 3;
const LEASE_MS = 2000;
const CLOCK_SKEW_MAX_MS = 100;
const RECOVERY_MS = LEASE_MS + 2 * CLOCK_SKEW_MAX_MS;

/** The clock advances in steps of the delay of each message. */
const STEP_MS = 1;

interface Size {
  readonly servers: number;
  readonly cellsPerServer: number;
}

interface Result {
  readonly cells: number;
  readonly held: number;
  /** Leases acquired or renewed during the measurement, which takes half a lease. */
  readonly rounds: number;
  readonly messages: number;
  /** Messages sent and received by each server in that time. */
  readonly loads: readonly number[];
}

interface Frame {
  readonly from: number;
  readonly to: number;
  readonly envelope: LeaseEnvelope;
  readonly messages: LeaseMessage[];
}

class Cluster {
  readonly ids: ServerId[];
  readonly hosts: LeaseHost[];
  readonly holders: Int32Array;
  readonly untilMs: Float64Array;
  readonly loads: Float64Array;
  rounds = 0;
  messages = 0;
  nowMs = 1_000_000;
  readonly #indexes = new Map<ServerId, number>();
  #underWay: Frame[] = [];

  constructor(servers: number, cells: number) {
    this.ids = Array.from({ length: servers }, (_, i) => `s${i}` as ServerId);
    this.ids.forEach((id, index) => {
      this.#indexes.set(id, index);
    });
    this.holders = new Int32Array(cells + 1).fill(-1);
    this.untilMs = new Float64Array(cells + 1);
    this.loads = new Float64Array(servers);
    const timing = { leaseMs: LEASE_MS, clockSkewMaxMs: CLOCK_SKEW_MAX_MS };
    this.hosts = this.ids.map(
      (self, index) =>
        new LeaseHost({ self, incarnation: (index + 1) as Incarnation, ...timing }, this.nowMs),
    );
  }

  run(durationMs: number, each: () => void = () => {}): void {
    const endMs = this.nowMs + durationMs;
    while (this.nowMs < endMs) {
      this.nowMs += STEP_MS;
      const arriving = this.#underWay;
      this.#underWay = [];
      for (const { from, to, envelope, messages } of arriving) {
        this.loads[to] = (this.loads[to] as number) + messages.length;
        this.step(to, { kind: 'frame', from: this.ids[from] as ServerId, envelope, messages });
      }
      for (let index = 0; index < this.hosts.length; index++) {
        const wakeMs = (this.hosts[index] as LeaseHost).nextWakeMs();
        if (wakeMs !== null && wakeMs <= this.nowMs) this.step(index, { kind: 'tick' });
      }
      each();
    }
  }

  step(index: number, event: LeaseEvent): void {
    const host = this.hosts[index] as LeaseHost;
    const frames = new Map<number, Frame>();
    for (const action of host.step(event, this.nowMs)) {
      if (action.kind === 'send') this.#send(host, index, action, frames);
      else if (action.kind === 'held') this.#held(index, action.cell, action.untilMs);
    }
  }

  #send(
    host: LeaseHost,
    from: number,
    action: Extract<LeaseAction, { kind: 'send' }>,
    frames: Map<number, Frame>,
  ): void {
    this.messages++;
    this.loads[from] = (this.loads[from] as number) + 1;
    const to = this.#indexes.get(action.to) as number;
    const frame = frames.get(to);
    if (frame !== undefined) {
      frame.messages.push(action.message);
      return;
    }
    const opened = { from, to, envelope: host.envelope(action.to, this.nowMs), messages: [action.message] };
    frames.set(to, opened);
    this.#underWay.push(opened);
  }

  #held(index: number, cell: CellId, untilMs: number): void {
    this.rounds++;
    const holder = this.holders[cell] as number;
    if (holder >= 0 && holder !== index && (this.untilMs[cell] as number) > this.nowMs) {
      throw new Error(`L1: cell ${cell} is held by ${this.ids[holder]} and ${this.ids[index]}`);
    }
    this.holders[cell] = index;
    this.untilMs[cell] = untilMs;
  }
}

function measure({ servers, cellsPerServer }: Size): Result {
  const cells = servers * cellsPerServer;
  const cluster = new Cluster(servers, cells);
  const dice = new Prng(servers);
  cluster.run(RECOVERY_MS + LEASE_MS);
  let opened = 0;
  cluster.run(LEASE_MS, () => {
    // Two members want every tenth cell, so that they conflict.
    for (const end = opened + Math.ceil((cells * STEP_MS) / LEASE_MS); opened < Math.min(end, cells); ) {
      const cell = ++opened as CellId;
      const members = membersDraw(dice, servers).map((index) => cluster.ids[index] as ServerId);
      for (const member of members.slice(0, cell % 10 === 0 ? 2 : 1)) {
        const index = cluster.ids.indexOf(member);
        cluster.step(index, { kind: 'open', cell, view: 1, members, handicapMs: 0 });
      }
    }
  });
  const [rounds, messages] = [cluster.rounds, cluster.messages];
  cluster.loads.fill(0);
  cluster.run(LEASE_MS / 2);
  let held = 0;
  for (let cell = 1; cell <= cells; cell++) {
    const holder = cluster.hosts[cluster.holders[cell] as number];
    if (holder?.owns(cell as CellId, cluster.nowMs)) held++;
  }
  return {
    cells,
    held,
    rounds: cluster.rounds - rounds,
    messages: cluster.messages - messages,
    loads: [...cluster.loads],
  };
}

function membersDraw(dice: Prng, servers: number): number[] {
  const members: number[] = [];
  while (members.length < MEMBERS) {
    const index = dice.integer(0, servers - 1);
    if (!members.includes(index)) members.push(index);
  }
  return members;
}

/** Mean, largest value as a multiple of the mean, and standard deviation as a share of it. */
function spreadOf(values: readonly number[]): { mean: number; max: number; deviation: number } {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length;
  return { mean, max: values.reduce((a, b) => Math.max(a, b)) / mean, deviation: Math.sqrt(variance) / mean };
}

function print(cellsPerServer: number): void {
  console.log('Load of one server over half a lease, of renewals; messages sent and received');
  console.log(
    'servers      cells       held  messages/round  per server  largest/mean  deviation/mean   took',
  );
  for (const servers of [10, 100, 1000]) {
    const beganMs = performance.now();
    const { cells, held, rounds, messages, loads } = measure({ servers, cellsPerServer });
    const { mean, max, deviation } = spreadOf(loads);
    const columns = [
      String(servers).padStart(7),
      String(cells).padStart(10),
      String(held).padStart(10),
      (messages / rounds).toFixed(2).padStart(15),
      Math.round(mean).toLocaleString('en').padStart(11),
      max.toFixed(2).padStart(13),
      deviation.toFixed(3).padStart(15),
      `${((performance.now() - beganMs) / 1000).toFixed(1)} s`.padStart(6),
    ];
    console.log(columns.join(' '));
  }
}

print(process.argv.includes('--quick') ? 50 : 1000);
