/**
 * Goal: what idle volumes' catalogs cost depends on the servers that have them, not on their number.
 * Method: the lease layers of three servers over a network of the test, which counts frames.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { type CatalogNumber, catalogCell, type Incarnation, type ServerId } from '../../base/ids.ts';
import { LeaseFrameReader } from '../../lease/codec.ts';
import type { LeaseMessage } from '../../lease/messages.ts';
import type { View } from '../../replica/view.ts';
import { LeaseDriver } from '../../server/drivers/lease-driver.ts';
import { WakeQueue } from '../../server/drivers/wake-queue.ts';
import { Clock } from '../../server/process/clock.ts';
import type { Transport } from '../../server/transport/transport.ts';
import { ManualWorld } from '../membership/manual-world.ts';

const IDS = ['a', 'b', 'c'] as ServerId[];
const LEASE_MS = 6_000;
const CLOCK_SKEW_MAX_MS = 100;
const CATALOGS = 8;
const RENEWALS_PER_LEASE = 3;
const MESSAGES_MAX = 1_000;
const cells = Array.from({ length: CATALOGS }, (_, place) => catalogCell((place + 1) as CatalogNumber));

interface SentFrame {
  readonly from: ServerId;
  readonly messages: readonly LeaseMessage[];
}

/** Messages arrive in the next turn of the event loop. */
class LeaseNetwork {
  readonly world = new ManualWorld();
  readonly drivers = new Map<ServerId, LeaseDriver>();
  readonly frames: SentFrame[] = [];

  constructor() {
    for (const [place, self] of IDS.entries()) this.drivers.set(self, this.#driver(self, place + 1));
  }

  /** Each server is preferred for as many catalogs as the others. */
  open(place: number): void {
    const members = [...IDS.slice(place % IDS.length), ...IDS.slice(0, place % IDS.length)];
    const view: View = { number: 1, members };
    for (const driver of this.drivers.values()) driver.open(cells[place] as (typeof cells)[number], view);
  }

  get holders(): readonly (ServerId | null)[] {
    return cells.map((cell) => {
      const seen = new Set([...this.drivers.values()].map((driver) => driver.view(cell).holder));
      const [holder = null] = seen;
      return seen.size === 1 ? holder : null;
    });
  }

  close(): void {
    for (const driver of this.drivers.values()) driver.closeDriver();
  }

  #driver(self: ServerId, incarnation: number): LeaseDriver {
    const { world } = this;
    const clock = new Clock(world);
    const send = (to: ServerId, payload: Uint8Array): void => {
      const frame = payload.slice();
      this.frames.push({ from: self, messages: new LeaseFrameReader(frame).next(MESSAGES_MAX) });
      world.soon(() => this.drivers.get(to)?.receive(self, frame));
    };
    return new LeaseDriver({
      ...{ self, world, clock, wakes: new WakeQueue(world, clock), log: pino({ level: 'silent' }) },
      peers: IDS.filter((id) => id !== self),
      ...{ leaseMs: LEASE_MS, clockSkewMaxMs: CLOCK_SKEW_MAX_MS, algorithm: 'flease' },
      drawIncarnation: () => incarnation as Incarnation,
      transport: () => ({ send: (to, _channel, payload) => send(to, payload) }) as Transport,
      knownView: () => null,
      ownLeaseChanged: () => undefined,
      fatal: (error) => {
        throw error;
      },
    });
  }
}

test("leases of many volumes' catalogs are renewed in few frames, and all members know the holders", async () => {
  const network = new LeaseNetwork();
  const { world, frames } = network;
  await world.pass(LEASE_MS + 3 * CLOCK_SKEW_MAX_MS);
  for (let place = 0; place < CATALOGS; place++) {
    network.open(place);
    await world.pass(700);
  }
  await world.pass(LEASE_MS);
  const { holders } = network;
  assert.deepEqual(new Set(holders), new Set(IDS));
  frames.length = 0;
  for (let waited = 0; waited < 2 * LEASE_MS; waited += 100) {
    await world.pass(100);
    assert.deepEqual(network.holders, holders);
  }
  network.close();
  const kinds = (kind: LeaseMessage['kind']): SentFrame[] =>
    frames.filter(({ messages }) => messages.some((message) => message.kind === kind));
  // Each server asks one or two others.
  const rounds = 2 * RENEWALS_PER_LEASE;
  for (const kind of ['read', 'write'] as const) {
    const count = kinds(kind).length;
    assert.ok(count >= rounds * IDS.length && count <= (rounds + 1) * IDS.length * 2, `${count} of ${kind}`);
  }
});
