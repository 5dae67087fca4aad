import { setTimeout as delay } from 'node:timers/promises';
import type { BenchFile, ReplicaCluster } from './replica-cluster.ts';
import { WriteSession } from './write-session.ts';

/** Between a failed attempt and the next one. */
const RETRY_MS = 2;
/** Between an acknowledgement and the next write. */
const PACE_MS = 2;
const BYTES = Buffer.alloc(512, 0x5a);
/** A write without an acknowledgement for so long fails the measurement. */
const PATIENCE_MS = 60_000;

export interface Acknowledgement {
  /** When the writer received it, by `performance.now()`. */
  readonly atMs: number;
  /** The epoch in which the write was ordered. */
  readonly epoch: number;
}

/**
 * A client that writes to one file without end, whatever happens to the servers: a write that is refused or not
 * answered is sent again every few milliseconds to the next server, as the same request.
 */
export class SteadyWriter {
  readonly acknowledgements: Acknowledgement[] = [];
  readonly #servers: ReplicaCluster;
  readonly #session: WriteSession;
  readonly #waiting = new Set<() => void>();
  readonly #ended: Promise<void>;
  #asked: string;
  #writing = true;
  #failure: Error | null = null;

  private constructor(servers: ReplicaCluster, session: WriteSession, primary: string) {
    this.#servers = servers;
    this.#session = session;
    this.#asked = primary;
    this.#ended = this.#write().catch((error: unknown) => {
      this.#failure = error instanceof Error ? error : new Error(String(error));
      this.#wake();
    });
  }

  static async start(servers: ReplicaCluster, { file, path }: BenchFile): Promise<SteadyWriter> {
    const session = await WriteSession.begin(servers, file);
    return new SteadyWriter(servers, session, await servers.cluster.primaryOf(path));
  }

  /** @returns the first acknowledgement, past or future, for which `holds` is true */
  async first(holds: (acknowledgement: Acknowledgement) => boolean): Promise<Acknowledgement> {
    for (let seen = 0; ; ) {
      for (; seen < this.acknowledgements.length; seen++) {
        const acknowledgement = this.acknowledgements[seen] as Acknowledgement;
        if (holds(acknowledgement)) return acknowledgement;
      }
      if (this.#failure !== null) throw this.#failure;
      await new Promise<void>((resolve) => this.#waiting.add(resolve));
    }
  }

  async stop(): Promise<void> {
    this.#writing = false;
    await this.#ended;
    if (this.#failure !== null) throw this.#failure;
  }

  async #write(): Promise<void> {
    while (this.#writing) {
      const epoch = await this.#acknowledged(this.#session.next());
      this.acknowledgements.push({ atMs: performance.now(), epoch });
      this.#wake();
      await delay(PACE_MS);
    }
  }

  /** @returns the epoch in which the write was ordered */
  async #acknowledged(number: number): Promise<number> {
    const deadlineMs = performance.now() + PATIENCE_MS;
    for (;;) {
      const asked = this.#asked;
      const answer = await this.#session.attempt(this.#servers.pool(asked), number, 0, BYTES);
      if (answer.kind === 'acknowledged') {
        this.#asked = answer.state.primary;
        return answer.state.epoch;
      }
      if (performance.now() > deadlineMs) {
        throw new Error(
          `Write ${number} was not acknowledged in ${PATIENCE_MS} ms: ${JSON.stringify(answer)}`,
        );
      }
      const named = answer.kind === 'refused' && answer.primary !== asked ? answer.primary : null;
      this.#asked = named ?? this.#after(asked);
      await delay(RETRY_MS);
    }
  }

  #after(asked: string): string {
    const { ids } = this.#servers;
    return ids[(ids.indexOf(asked) + 1) % ids.length] as string;
  }

  #wake(): void {
    for (const resolve of this.#waiting) resolve();
    this.#waiting.clear();
  }
}

/** @returns the longest time between two successive acknowledgements from `fromMs` to `toMs` */
export function longestGapMs(
  acknowledgements: readonly Acknowledgement[],
  fromMs: number,
  toMs: number,
): number {
  let longestMs = 0;
  for (let place = 1; place < acknowledgements.length; place++) {
    const before = acknowledgements[place - 1] as Acknowledgement;
    const after = acknowledgements[place] as Acknowledgement;
    if (after.atMs < fromMs || before.atMs > toMs) continue;
    longestMs = Math.max(longestMs, after.atMs - before.atMs);
  }
  return longestMs;
}
