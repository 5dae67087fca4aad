/** One run: servers, load, faults, and the judgement of what the clients saw. */
import { setTimeout as delay } from 'node:timers/promises';
import { Prng } from '../../base/prng.ts';
import { type HistoryVerdict, historyCheck } from '../history/checker.ts';
import { usableFaults } from './abilities.ts';
import type { Arguments, FaultName } from './arguments.ts';
import { type Death, isOfFullDisk, NemesisCluster } from './cluster.ts';
import { ALONE, FAULT_RUNS, type FaultWorld, powerOfAll } from './faults.ts';
import { Load } from './load.ts';
import type { Network } from './network.ts';
import { countUp, Recorder } from './recorder.ts';
import { Recovery } from './recovery.ts';
import { Requests } from './requests.ts';
import { SnapshotWatch } from './snapshots.ts';

/** The replicas of each file. */
const REPLICAS = 3;
/** Clocks may differ by this part of a lease; the servers refuse more than a tenth. */
const SKEW_PER_LEASE = 1 / 20;
/** The probability of two faults at the same time. */
const PAIR_RATE = 0.3;
/** When all servers lose their power, as a part of the load's time. */
const POWER_OF_ALL_AT = 0.6;

export interface RunResult {
  readonly verdict: HistoryVerdict;
  readonly recorder: Recorder;
  readonly faults: ReadonlyMap<string, number>;
  readonly skipped: readonly string[];
  /** Servers that ended by themselves, except those with a full disk. */
  readonly deaths: readonly Death[];
  /** How often the catalog's primary changed. */
  readonly catalogFailovers: number;
  /** Keys that a server did not return at the end, and other things that did not happen in time. */
  readonly untold: readonly string[];
  readonly snapshots: SnapshotWatch['counts'];
  /** Errors of snapshots, as text. */
  readonly ofSnapshots: readonly string[];
  readonly checkMs: number;
  /** The files of the ended servers. */
  readonly cluster: NemesisCluster;
}

/** @param network created for as many servers */
export async function nemesisRun(options: Arguments, network: Network): Promise<RunResult> {
  const say = sayer();
  const { faults, skipped } = usableFaults(options.faults, network);
  for (const reason of skipped) say(`SKIPPED ${reason}`);
  const clockSkewMs = Math.floor(options.leaseMs * SKEW_PER_LEASE);
  const cluster = await NemesisCluster.start({
    servers: options.servers,
    leaseMs: options.leaseMs,
    clockSkewMs,
    operationTimeoutMs: 2 * options.leaseMs,
    network,
    ownDisks: faults.includes('disk-full') || faults.includes('power'),
  });
  const recorder = new Recorder(options.out);
  const urls = new Map(cluster.ids.map((id) => [id, cluster.url(id)]));
  const requests = new Requests(urls, (code) => recorder.problem(code));
  const { seed, paceMs } = options;
  const load = new Load({ requests, recorder, seed, paceMs, replicas: REPLICAS });
  const watch = new SnapshotWatch(requests, [...urls.values()], seed);
  try {
    await load.start();
    await watch.start(REPLICAS);
    say(`${options.servers} servers under load; seed ${seed}, folder ${cluster.folder}`);
    const recovery = new Recovery(cluster, requests, load, watch);
    const storm = new Storm({ options, faults, cluster, recorder, recovery, load, clockSkewMs, say });
    await storm.run();
    say('all faults are over');
    await load.end();
    const untold = [...storm.late, ...(await load.lastReads())];
    const ofSnapshots = await watch.end();
    await cluster.stop();
    say('checking');
    const beganMs = performance.now();
    const verdict = historyCheck(recorder.operations);
    const checkMs = performance.now() - beganMs;
    const { counts, deaths, catalogFailovers } = storm;
    const snapshots = watch.counts;
    return {
      ...{ verdict, recorder, faults: counts, skipped, deaths, catalogFailovers, untold, checkMs, cluster },
      ...{ snapshots, ofSnapshots },
    };
  } finally {
    // An error of a fault counts more than those of the clients.
    await Promise.allSettled([load.end(), watch.stop()]);
    await requests.close();
    await recorder.close();
    await cluster.stop();
  }
}

interface StormParts {
  readonly options: Arguments;
  readonly faults: readonly FaultName[];
  readonly cluster: NemesisCluster;
  readonly recorder: Recorder;
  readonly recovery: Recovery;
  readonly load: Load;
  readonly clockSkewMs: number;
  readonly say: (text: string) => void;
}

/** Injects faults one after the other, or two at a time, until the time is over; then heals all. */
class Storm {
  readonly counts = new Map<string, number>();
  readonly late: string[] = [];
  readonly deaths: Death[] = [];
  catalogFailovers = 0;
  readonly #parts: StormParts;
  readonly #prng: Prng;
  #catalogPrimary: string | null = null;
  /** Faults that are still to come before any is repeated, so that a short run has all of them. */
  #deck: FaultName[] = [];

  constructor(parts: StormParts) {
    this.#parts = parts;
    this.#prng = new Prng(parts.options.seed);
  }

  async run(): Promise<void> {
    const { options, faults, recovery } = this.#parts;
    const beganMs = performance.now();
    const endMs = beganMs + options.loadMs;
    let allLostPower = !faults.includes('power');
    while (performance.now() < endMs) {
      if (!allLostPower && performance.now() > beganMs + POWER_OF_ALL_AT * options.loadMs) {
        allLostPower = true;
        await powerOfAll(this.#world());
        continue;
      }
      await this.#round();
      await this.#heal();
      await this.#lookAtCatalog();
      await delay(Math.max(0, Math.min(this.#prng.integer(0, options.leaseMs), endMs - performance.now())));
    }
    await recovery.heal();
    try {
      await recovery.allCurrent();
    } catch (error) {
      this.late.push(error instanceof Error ? error.message : String(error));
    }
  }

  async #round(): Promise<void> {
    const first = this.#draw();
    if (first === null) {
      await delay(this.#parts.options.leaseMs);
      return;
    }
    const world = this.#world();
    const victim = await world.victim();
    const running = [FAULT_RUNS[first](world, victim)];
    if (!ALONE.has(first) && this.#prng.chance(PAIR_RATE)) {
      const second = this.#draw();
      const others = this.#parts.cluster.ids.filter((id) => id !== victim);
      if (second !== null && !ALONE.has(second)) {
        running.push(FAULT_RUNS[second](world, this.#prng.pick(others)));
      } else if (second !== null) {
        this.#deck.push(second);
      }
    }
    const deathsBefore = this.#parts.cluster.deaths.length;
    await Promise.all(running);
    const isFull = first === 'disk-full' || running.length > 1;
    // A server may end if its disk refuses to write, and for no other reason.
    for (const death of this.#parts.cluster.deaths.slice(deathsBefore)) {
      if (!(isFull && isOfFullDisk(death))) this.deaths.push(death);
    }
  }

  #draw(): FaultName | null {
    if (this.#deck.length === 0) this.#deck = [...this.#parts.faults];
    if (this.#deck.length === 0) return null;
    return this.#deck.splice(this.#prng.integer(0, this.#deck.length - 1), 1)[0] as FaultName;
  }

  async #heal(): Promise<void> {
    try {
      await this.#parts.recovery.heal();
    } catch (error) {
      this.late.push(error instanceof Error ? error.message : String(error));
    }
  }

  async #lookAtCatalog(): Promise<void> {
    const primary = (await this.#parts.cluster.status())?.catalog.primary ?? null;
    if (primary === null) return;
    if (this.#catalogPrimary !== null && primary !== this.#catalogPrimary) this.catalogFailovers++;
    this.#catalogPrimary = primary;
  }

  #world(): FaultWorld {
    const { options, cluster, recorder, recovery, load, clockSkewMs, say } = this.#parts;
    const prng = this.#prng;
    return {
      cluster,
      prng,
      recovery,
      clockSkewMs,
      leaseMs: options.leaseMs,
      say,
      count: (fault) => countUp(this.counts, fault),
      victim: async () => {
        const holders = [...load.keys.of('object'), ...load.keys.of('list'), ...load.keys.of('file')];
        const ofFile = recorder.primaryOf(String(prng.pick(holders).number));
        const wanted = prng.pick([ofFile, ofFile, this.#catalogPrimary, null]);
        return wanted ?? prng.pick(cluster.ids);
      },
    };
  }
}

function sayer(): (text: string) => void {
  const beganMs = performance.now();
  return (text) => {
    const seconds = ((performance.now() - beganMs) / 1000).toFixed(1).padStart(6);
    process.stdout.write(`${seconds} s  ${text}\n`);
  };
}
