/**
 * Named leases as mutexes: several holders compete for few names, act only while their own clock says that they hold
 * the lease, and write values under it. Judged by true time: acts of two sessions do not interleave, tokens rise over
 * all names, and a majority shows a state of a moment between query and answer.
 */
import { ServiceError } from '../../../../base/errors.ts';
import type { HeldLease } from '../../../../client/lease/held-lease.ts';
import { NamedLeaseClient } from '../../../../client/lease/named-lease-client.ts';
import type { LeaseQueryAnswer } from '../../../../wire/named-lease-api.ts';
import type { ClientProgram } from '../program.ts';
import type { Run } from '../run.ts';
import type { SimulatedProcess } from '../simulated-process.ts';
import type { Workload } from '../workload.ts';
import { perRun } from './parts.ts';

const NAMES = ['a', 'jobs/b'];
const KEYS = ['j', 'k'];
const TTL_MS = { least: 500, most: 5_000 };
/** Of each thread. */
const CONTENDERS = 2;
const THINK_MS_MAX = 150;
/** The probability per turn that all servers are killed, and forget leases. */
const KILLS = 0.004;
/** Clocks of clients drift: a lease counts as lost a little before its end. */
const MARGIN_MS = 5;
const LOOK_TIMEOUT_MS = 8_000;
/** Errors that only mean that there is no lease now. */
const NOT_NOW: ReadonlySet<string> = new Set([
  ...['lease-taken', 'lease-lost', 'unknown', 'no-majority', 'recovering', 'clock-fault', 'busy'],
]);

/** The holder acted at `atNs` of true time. */
interface Act {
  readonly name: string;
  readonly token: number;
  readonly session: number;
  readonly atNs: number;
}

/** A query of a majority. */
interface Look {
  readonly name: string;
  readonly callNs: number;
  readonly returnNs: number;
  readonly seen: Pick<LeaseQueryAnswer, 'held' | 'token' | 'owner'>;
}

const stateOf = perRun(() => ({ acts: [] as Act[], looks: [] as Look[] }));

function leasesOf(run: Run, world: SimulatedProcess): NamedLeaseClient {
  const { cluster } = run;
  return new NamedLeaseClient({ world, servers: cluster.origins, access: cluster.access(world) });
}

async function compete(program: ClientProgram): Promise<void> {
  const leases = leasesOf(program.run, program.world);
  const contender = new Contender(program, leases);
  const turns = async (): Promise<void> => {
    while (!program.isEnding) {
      await contender.turn();
      await program.think(THINK_MS_MAX);
    }
  };
  try {
    await Promise.all(Array.from({ length: CONTENDERS }, turns));
  } finally {
    await leases.close();
  }
}

class Contender {
  readonly #program: ClientProgram;
  readonly #leases: NamedLeaseClient;

  constructor(program: ClientProgram, leases: NamedLeaseClient) {
    this.#program = program;
    this.#leases = leases;
  }

  async turn(): Promise<void> {
    const { draw, run } = this.#program;
    const name = draw.pick(NAMES);
    if (!this.#program.isEnding && draw.chance(KILLS)) {
      run.cluster.killEverywhere(draw);
      run.count('kill of all');
    }
    try {
      if (draw.chance(0.35)) await this.#look(name);
      else await this.#hold(name);
    } catch (error) {
      if (!(error instanceof ServiceError) || !NOT_NOW.has(error.code)) throw error;
      run.count(`lease ${error.code}`);
      await this.#program.world.sleep(20 + draw.next() * 200);
    }
  }

  async #look(name: string): Promise<void> {
    const { run } = this.#program;
    const callNs = run.nowNs();
    const seen = await this.#leases.show(name, { timeoutMs: LOOK_TIMEOUT_MS });
    if (seen.consistency !== 'majority') return;
    stateOf(run).looks.push({ name, callNs, returnNs: run.nowNs(), seen });
    run.count('lease look');
  }

  async #hold(name: string): Promise<void> {
    const { draw, run, world } = this.#program;
    const { least, most } = TTL_MS;
    const ttlMs = Math.round(least + (draw.chance(0.5) ? draw.next() * 1_500 : draw.next() * (most - least)));
    const owner = this.#program.name;
    const lease = await this.#leases.acquire(name, { ttlMs, owner, marginMs: MARGIN_MS, wait: false });
    run.count('lease acquired');
    this.#act(lease);
    const values = new Map<string, string>();
    const turns = draw.integer(1, 8);
    for (let turn = 0; turn < turns && lease.isHeld; turn++) {
      if (draw.chance(0.2)) await this.#change(lease, values);
      else await world.sleep(draw.next() * ttlMs * 0.5);
      this.#act(lease);
    }
    await this.#end(lease);
  }

  /** Checks the clock and acts, in one step. */
  #act(lease: HeldLease): void {
    const { run } = this.#program;
    if (!lease.isHeld) return;
    const { name, token, session } = lease;
    stateOf(run).acts.push({ name, token, session, atNs: run.nowNs() });
  }

  /** @param values that this holder has set, by key */
  async #change(lease: HeldLease, values: Map<string, string>): Promise<void> {
    const { run, draw } = this.#program;
    if (draw.chance(0.3)) {
      await lease.refresh();
      run.count('lease refreshed');
      return;
    }
    for (const key of draw.chance(0.5) ? KEYS : [draw.pick(KEYS)]) {
      const value = run.fresh();
      await lease.setKey(key, value);
      values.set(key, value);
      run.count('lease key');
    }
    const { keys } = await this.#leases.show(lease.name, { timeoutMs: LOOK_TIMEOUT_MS });
    if (!lease.isHeld) return;
    // No other session writes while this one holds it.
    for (const [key, value] of values)
      if (keys[key] !== value)
        run.violation(
          `lease ${lease.name} ${lease.token}: ${keys[key]} where its holder has set ${key} to ${value}`,
        );
  }

  async #end(lease: HeldLease): Promise<void> {
    const { draw, run } = this.#program;
    if (lease.lost.aborted) {
      run.count(lease.lostEarly ? 'lease lost early' : 'lease lost');
      return;
    }
    if (draw.chance(0.2)) {
      lease.abandon();
      run.count('lease abandoned');
      return;
    }
    await lease.release();
    run.count('lease released');
  }
}

/** Compares acts in the order of true time: an older token after a newer one is a second holder. */
function judgeActs(run: Run, acts: readonly Act[]): void {
  let last: Act | null = null;
  for (const act of [...acts].sort((a, b) => a.atNs - b.atNs)) {
    if (last !== null && act.token < last.token)
      run.violation(
        `lease ${act.name}: token ${act.token} acts at ${ms(act.atNs)} after ${last.token} at ${ms(last.atNs)}`,
      );
    if (last !== null && act.token === last.token && act.session !== last.session)
      run.violation(`lease ${act.name}: two sessions have token ${act.token}`);
    last = act;
  }
}

function judgeLook(run: Run, { name, callNs, returnNs, seen }: Look, acts: readonly Act[]): void {
  const before = acts.filter(({ atNs }) => atNs < callNs);
  const newest = Math.max(0, ...before.map(({ token }) => token));
  if (seen.held && seen.token < newest)
    run.violation(
      `lease ${name}: token ${seen.token} is shown at ${ms(returnNs)}, and ${newest} acted before ${ms(callNs)}`,
    );
  const holds = acts.some(({ token, atNs }) => token === newest && atNs > returnNs);
  if (holds && !(seen.held && seen.token === newest))
    run.violation(
      `lease ${name}: token ${newest} holds it all the time until ${ms(returnNs)}, and ${JSON.stringify(seen)} is shown`,
    );
}

const ms = (ns: number): string => `${(ns / 1e6).toFixed(1)} ms`;

export const namedLeases: Workload = {
  name: 'named-leases',
  demands: [
    ...[
      'lease acquired',
      'lease look',
      'lease released',
      'lease abandoned',
      'lease lease-taken',
      'lease key',
    ],
    ...['lease refreshed', 'refused unknown'],
  ],
  client: compete,
  async settle(run, client) {
    const leases = leasesOf(run, client.world as SimulatedProcess);
    for (const name of NAMES) {
      const lease = await leases.acquire(name, { ttlMs: 2_000, owner: 'last', marginMs: MARGIN_MS });
      const { token, session } = lease;
      stateOf(run).acts.push({ name, token, session, atNs: run.nowNs() });
      await lease.release();
    }
    await leases.close();
  },
  judge(run) {
    const { acts, looks } = stateOf(run);
    for (const name of NAMES) {
      const own = acts.filter((act) => act.name === name);
      judgeActs(run, own);
      for (const look of looks) if (look.name === name) judgeLook(run, look, own);
    }
  },
};
