import { unreachable } from '../../base/assert.ts';
import type { CellId, Incarnation, ServerId } from '../../base/ids.ts';
import type { LeaseAction, LeaseEvent } from '../../lease/actions.ts';
import { decodeLeaseFrame, encodeLeaseFrame } from '../../lease/codec.ts';
import { LeaseHost } from '../../lease/host.ts';
import type { LeaseMessage } from '../../lease/messages.ts';
import type { MemoryHostOptions, MemoryOrder, MemoryReport, Parcel } from './memory-orders.ts';

/**
 * The number of garbage collections before memory is read: memory that the first one frees is unmapped by a later one.
 */
const COLLECTIONS = 4;

/** Lease hosts without sockets and timers: their memory is that of their cells. */
class BareHosts {
  readonly #hosts: ReadonlyMap<ServerId, LeaseHost>;
  readonly #members: readonly ServerId[];
  /** Messages of this step, by receiver and sender. */
  readonly #outgoing = new Map<string, { from: ServerId; to: ServerId; messages: LeaseMessage[] }>();
  #held = 0;

  constructor(options: MemoryHostOptions) {
    const { leaseMs, clockSkewMaxMs, algorithm, startMs } = options;
    this.#members = options.members as readonly ServerId[];
    this.#hosts = new Map(
      (options.hosts as readonly ServerId[]).map((self) => {
        const incarnation = (this.#members.indexOf(self) + 1) as Incarnation;
        return [self, new LeaseHost({ self, incarnation, leaseMs, clockSkewMaxMs, algorithm }, startMs)];
      }),
    );
  }

  step(order: Extract<MemoryOrder, { kind: 'step' }>): MemoryReport {
    const { nowMs, open } = order;
    for (const [self, host] of this.#hosts) this.#feed(self, host, { kind: 'tick' }, nowMs);
    for (const { from, to, bytes } of order.parcels) {
      const host = this.#hosts.get(to as ServerId);
      if (host === undefined) continue;
      const frame = decodeLeaseFrame(bytes);
      this.#feed(to as ServerId, host, { kind: 'frame', from: from as ServerId, ...frame }, nowMs);
    }
    const opener = open === null ? undefined : this.#hosts.get(open.host as ServerId);
    for (let index = 0; open !== null && opener !== undefined && index < open.count; index++) {
      const cell = (open.first + index) as CellId;
      const event: LeaseEvent = { kind: 'open', cell, view: 1, members: this.#members, handicapMs: 0 };
      this.#feed(open.host as ServerId, opener, event, nowMs);
    }
    const wakes = [...this.#hosts.values()].map((host) => host.nextWakeMs()).filter((atMs) => atMs !== null);
    return {
      kind: 'stepped',
      parcels: this.#parcels(nowMs),
      held: this.#held,
      wakeMs: wakes.length === 0 ? null : Math.min(...wakes),
    };
  }

  get cellCount(): number {
    return [...this.#hosts.values()].reduce((sum, host) => sum + host.cellCount, 0);
  }

  #feed(self: ServerId, host: LeaseHost, event: LeaseEvent, nowMs: number): void {
    for (const action of host.step(event, nowMs)) this.#perform(self, action);
  }

  #perform(self: ServerId, action: LeaseAction): void {
    if (action.kind === 'held') this.#held++;
    if (action.kind === 'lost') this.#held--;
    if (action.kind !== 'send') return;
    const key = `${self}>${action.to}`;
    const waiting = this.#outgoing.get(key);
    if (waiting === undefined)
      this.#outgoing.set(key, { from: self, to: action.to, messages: [action.message] });
    else waiting.messages.push(action.message);
  }

  #parcels(nowMs: number): Parcel[] {
    const parcels = [...this.#outgoing.values()].map(({ from, to, messages }) => {
      const host = this.#hosts.get(from) as LeaseHost;
      return { from, to, bytes: encodeLeaseFrame(host.envelope(to, nowMs), messages) };
    });
    this.#outgoing.clear();
    return parcels;
  }
}

/** @throws Error if the process was started without --expose-gc */
function measure(cells: number): MemoryReport {
  const { gc } = globalThis;
  if (gc === undefined) throw new Error('Memory is measured with --expose-gc only');
  // As under memory pressure: otherwise the engine keeps the memory of young objects.
  for (let collection = 0; collection < COLLECTIONS; collection++)
    gc({ type: 'major', execution: 'sync', flavor: 'last-resort' });
  const { rss, heapUsed, external } = process.memoryUsage();
  return { kind: 'measured', rssBytes: rss, liveBytes: heapUsed + external, cells };
}

const hosts = new BareHosts(JSON.parse(process.argv[2] ?? '') as MemoryHostOptions);

function obey(order: MemoryOrder): MemoryReport {
  switch (order.kind) {
    case 'step':
      return hosts.step(order);
    case 'measure':
      return measure(hosts.cellCount);
    default:
      return unreachable(order);
  }
}

process.on('message', (order: MemoryOrder) => process.send?.(obey(order)));
process.on('disconnect', () => process.exit(0));
