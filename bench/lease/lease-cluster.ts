import { type ChildProcess, fork } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { freePorts } from '../../client/dev/free-ports.ts';
import type { LeaseAlgorithm, LeaseTiming } from '../../lease/parameters.ts';
import { killAtEnd } from './cleanup.ts';
import { processCpuMs } from './cpu.ts';
import type { LeaseReport, LeaseServerOptions, Order } from './orders.ts';

const PROGRAM = fileURLToPath(new URL('./lease-server.ts', import.meta.url));
/** Longer than any order takes. */
const PATIENCE_MS = 120_000;
const FORGET_LOOK_MS = 500;

export interface LeaseTuning extends LeaseTiming {
  readonly algorithm: LeaseAlgorithm;
}

interface Member {
  readonly process: ChildProcess;
  readonly kill: () => void;
}

/** Lease servers, each in a process of its own, connected over loopback. */
export class LeaseCluster {
  readonly #members: readonly Member[];
  #nextCell = 1;

  private constructor(members: readonly Member[]) {
    this.#members = members;
  }

  /** @returns the cluster once all servers are connected and their recovery waits have ended */
  static async start(count: number, tuning: LeaseTuning): Promise<LeaseCluster> {
    const ids = Array.from({ length: count }, (_, place) => `s${place + 1}`);
    const free = await freePorts(count);
    const ports = Object.fromEntries(ids.map((id, place) => [id, free[place] as number]));
    const members = ids.map((self) => {
      const options: LeaseServerOptions = { self, ports, ...tuning };
      const child = fork(PROGRAM, [JSON.stringify(options)], {
        stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      });
      return { process: child, kill: killAtEnd(child) };
    });
    const cluster = new LeaseCluster(members);
    await Promise.all(members.map((member) => next(member.process, 'ready')));
    return cluster;
  }

  get size(): number {
    return this.#members.length;
  }

  /**
   * All servers acquire their share of `batch` new leases at once, and release them when all have theirs.
   *
   * @param groupSize servers that vote on each lease
   * @returns leases per second of all servers together, from the first begin to the last end
   */
  async batch(batch: number, groupSize: number): Promise<number> {
    const rate = await this.acquire(batch, groupSize);
    await this.giveBack();
    return rate;
  }

  /** Like `batch`, but keeps the leases. `holders` of the servers acquire, the others only vote. */
  async acquire(batch: number, groupSize: number, holders = this.size): Promise<number> {
    const share = Math.ceil(batch / holders);
    const reports = await Promise.all(
      this.#members.slice(0, holders).map((member) => {
        const order: Order = { kind: 'acquire', first: this.#nextCell, count: share, groupSize };
        this.#nextCell += share;
        return ask(member.process, order, 'acquired');
      }),
    );
    const begunMs = Math.min(...reports.map((report) => report.begunMs));
    const endedMs = Math.max(...reports.map((report) => report.endedMs));
    return (share * holders * 1000) / (endedMs - begunMs);
  }

  /** Releases all leases. Resolves once all servers know it. */
  async giveBack(): Promise<void> {
    await Promise.all(this.#members.map((member) => ask(member.process, { kind: 'return' }, 'returned')));
  }

  /** Resolves once no server remembers a cell, so that earlier measurements do not affect the next one. */
  async forgotten(): Promise<void> {
    const untilMs = performance.now() + PATIENCE_MS;
    for (;;) {
      const usages = await this.usage();
      if (usages.every((usage) => usage.cells === 0)) return;
      if (performance.now() > untilMs) throw new Error('Lease servers remember cells that no server wants');
      await delay(FORGET_LOOK_MS);
    }
  }

  /** The servers acquire `count` leases one after the other. @returns the time of each, in milliseconds */
  async singles(count: number): Promise<number[]> {
    const share = Math.ceil(count / this.size);
    const latenciesMs: number[] = [];
    for (const member of this.#members) {
      const order: Order = { kind: 'singles', first: this.#nextCell, count: share };
      this.#nextCell += share;
      latenciesMs.push(...(await ask(member.process, order, 'singles')).latenciesMs);
    }
    await this.giveBack();
    return latenciesMs;
  }

  /** @returns what each server has used so far, and its cells */
  usage(): Promise<readonly Extract<LeaseReport, { kind: 'usage' }>[]> {
    return Promise.all(this.#members.map((member) => ask(member.process, { kind: 'usage' }, 'usage')));
  }

  /** @returns CPU that all servers together have used since their start, in milliseconds */
  cpuMs(): number {
    return processCpuMs(this.#members.map((member) => member.process));
  }

  stop(): void {
    for (const member of this.#members) member.kill();
  }
}

function ask<Kind extends LeaseReport['kind']>(
  server: ChildProcess,
  order: Order,
  kind: Kind,
): Promise<Extract<LeaseReport, { kind: Kind }>> {
  const answer = next(server, kind);
  server.send(order);
  return answer;
}

/** @throws Error if the server ends, or does not report within `PATIENCE_MS` */
function next<Kind extends LeaseReport['kind']>(
  server: ChildProcess,
  kind: Kind,
): Promise<Extract<LeaseReport, { kind: Kind }>> {
  return new Promise((resolve, reject) => {
    const finish = (settle: () => void): void => {
      clearTimeout(patience);
      server.off('message', onMessage);
      server.off('exit', onExit);
      settle();
    };
    const onMessage = (report: LeaseReport): void => {
      if (report.kind === kind) finish(() => resolve(report as Extract<LeaseReport, { kind: Kind }>));
    };
    const onExit = (): void => finish(() => reject(new Error('A lease server has ended early')));
    const patience = setTimeout(
      () =>
        finish(() => reject(new Error(`A lease server did not report "${kind}" in ${PATIENCE_MS / 1000} s`))),
      PATIENCE_MS,
    );
    server.on('message', onMessage);
    server.on('exit', onExit);
  });
}
