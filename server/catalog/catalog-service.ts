import { assert } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import { CATALOG_CELL, type ServerId } from '../../base/ids.ts';
import { majority } from '../../base/quorum.ts';
import type { View } from '../../replica/actions.ts';
import type { Command, CommandRequest, CommandResults, Query, QueryResults } from '../../wire/catalog-api.ts';
import { bounded } from '../bounded.ts';
import type { Clock } from '../clock.ts';
import type { LeaseDriver } from '../lease-driver.ts';
import type { ReplicaDriver } from '../replica-driver.ts';
import type { CatalogService } from '../services.ts';
import type { CatalogSubject, Execution } from './catalog-subject.ts';

/** Commands in one batch, which is one operation and one transaction. */
const BATCH_MAX = 256;
/**
 * Characters of the JSON of one batch's commands. Whatever UTF-8 makes of them, at most three bytes of each, fits one
 * message between servers; a batch that did not would never reach a backup, and hold up all commands after it.
 */
const BATCH_CHARS_MAX = 2 * 1024 * 1024;
/** Commands that wait for a batch; more are refused with `busy`. */
const QUEUE_MAX = 4_096;
/** Without a majority in reach for this long, nobody is kept waiting for one. */
const NO_MAJORITY_PATIENCE_MS = 1_500;
/** Nobody looked for a majority for this long: what was seen before says nothing about the time between. */
const ALONE_FORGOTTEN_MS = 1_000;

type CommandResult = CommandResults[Command['kind']];

interface Waiting {
  readonly request: CommandRequest;
  readonly chars: number;
  resolve(result: CommandResult): void;
  reject(error: unknown): void;
}

export interface CatalogServiceParts {
  readonly self: ServerId;
  readonly view: View;
  readonly clock: Clock;
  readonly lease: LeaseDriver;
  readonly driver: ReplicaDriver;
  readonly subject: CatalogSubject;
  readonly operationTimeoutMs: number;
  /** Which servers hold a new file of a volume with that many replicas. */
  placement(replicas: number): ServerId[];
  isConnected(server: ServerId): boolean;
}

/** The namespace as this server, one of the catalog's members, can serve it. */
export class LocalCatalogService implements CatalogService {
  readonly #parts: CatalogServiceParts;
  #queue: Waiting[] = [];
  #executing = false;
  /** Since when, and when last, somebody who waits here saw no majority; kept, so that not each of them waits anew. */
  #alone: { readonly sinceMs: number; readonly seenMs: number } | null = null;

  constructor(parts: CatalogServiceParts) {
    this.#parts = parts;
    parts.driver.onRole(() => {
      if (!this.#isPrimary()) this.#refuseQueued();
    });
  }

  async execute(request: CommandRequest): Promise<CommandResult> {
    await this.#primary();
    if (this.#queue.length >= QUEUE_MAX) {
      throw new ServiceError('busy', `${QUEUE_MAX} commands wait for the catalog already`, {
        retryAfterMs: 100,
      });
    }
    return this.#bounded(
      new Promise((resolve, reject) => {
        const chars = JSON.stringify(request.command).length;
        this.#queue.push({ request, chars, resolve, reject });
        void this.#pump();
      }),
    );
  }

  async query(query: Query): Promise<QueryResults[Query['kind']]> {
    await this.#primary();
    return this.#parts.subject.query(query);
  }

  async flush(): Promise<void> {
    await this.#primary();
    await this.#bounded(this.#parts.driver.flush());
  }

  status(): { primary: ServerId | null; epoch: number; seq: number; members: readonly ServerId[] } {
    const { lease, driver, view } = this.#parts;
    const { epoch, seq } = driver.status();
    return { primary: lease.view(CATALOG_CELL).holder, epoch: epoch.counter, seq, members: view.members };
  }

  isPrimary(): boolean {
    return this.#isPrimary();
  }

  #isPrimary(): boolean {
    return this.#parts.driver.readGate(0) === 'serve';
  }

  /** Resolves where this server is the catalog's primary; waits for a coming election, within bounds. */
  async #primary(): Promise<void> {
    const { lease, clock, driver } = this.#parts;
    const deadlineMs = clock.nowMs() + this.#parts.operationTimeoutMs;
    while (!this.#isPrimary()) {
      lease.assertUsable();
      const held = lease.view(CATALOG_CELL);
      if (!held.own && held.holder !== null && held.remainingMs > 0 && this.#parts.isConnected(held.holder)) {
        throw new ServiceError('not-primary', `Server ${held.holder} is the primary of the catalog`, {
          primary: held.holder,
        });
      }
      const nowMs = clock.nowMs();
      if (this.#aloneMs(nowMs) > NO_MAJORITY_PATIENCE_MS || nowMs > deadlineMs) {
        throw this.#noMajority('The catalog has no majority of its servers');
      }
      await this.#change(driver);
    }
  }

  /** @returns for how long no majority has been connected, as far as somebody looked */
  #aloneMs(nowMs: number): number {
    const { members } = this.#parts.view;
    if (members.length - this.#unreachable().length >= majority(members.length)) {
      this.#alone = null;
      return 0;
    }
    const before = this.#alone;
    const continued = before !== null && nowMs - before.seenMs <= ALONE_FORGOTTEN_MS;
    this.#alone = { sinceMs: continued ? before.sinceMs : nowMs, seenMs: nowMs };
    return nowMs - this.#alone.sinceMs;
  }

  #change(driver: ReplicaDriver): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        offRole();
        offLease();
        resolve();
      };
      const timer = setTimeout(done, 100);
      const offRole = driver.onRole(done);
      const offLease = this.#parts.lease.onChange(CATALOG_CELL, done);
    });
  }

  /** One batch at a time: while one is replicated, the next one gathers. */
  async #pump(): Promise<void> {
    if (this.#executing) return;
    this.#executing = true;
    try {
      while (this.#queue.length > 0) {
        await this.#parts.subject.ready();
        if (!this.#isPrimary()) {
          this.#refuseQueued();
          return;
        }
        await this.#executeBatch(this.#takeBatch());
      }
    } finally {
      this.#executing = false;
    }
  }

  /** At least one command, and no more than fit one operation. */
  #takeBatch(): Waiting[] {
    let count = 0;
    let chars = 0;
    for (const waiting of this.#queue) {
      chars += waiting.chars;
      if (count > 0 && (count === BATCH_MAX || chars > BATCH_CHARS_MAX)) break;
      count++;
    }
    return this.#queue.splice(0, count);
  }

  async #executeBatch(batch: readonly Waiting[]): Promise<void> {
    const { subject, driver } = this.#parts;
    let execution: Execution;
    try {
      execution = subject.execute(
        batch.map((waiting) => waiting.request),
        { nowNs: this.#parts.clock.wallNs(), placement: (replicas) => this.#parts.placement(replicas) },
      );
    } catch (error) {
      for (const waiting of batch) waiting.reject(error);
      return;
    }
    try {
      if (execution.body !== null) {
        await driver.submit({ request: null, result: new Uint8Array(0), body: execution.body });
      }
    } catch (error) {
      // Whether a coming primary finds the batch at some replica is not known: the same requests will tell.
      subject.abandon();
      for (const waiting of batch) waiting.reject(error);
      return;
    }
    for (const [place, waiting] of batch.entries()) {
      const outcome = execution.outcomes[place];
      assert(outcome !== undefined, 'Every request has an outcome');
      if (outcome.kind === 'done') waiting.resolve(outcome.result);
      else waiting.reject(new ServiceError(outcome.code, outcome.message));
    }
  }

  #refuseQueued(): void {
    const holder = this.#parts.lease.view(CATALOG_CELL).holder;
    const details = holder === null || holder === this.#parts.self ? {} : { primary: holder };
    for (const waiting of this.#queue.splice(0)) {
      waiting.reject(
        new ServiceError('not-primary', 'This server is no longer the primary of the catalog', details),
      );
    }
  }

  /** Nobody waits longer than the operation time-out, whatever the other servers do. */
  #bounded<Value>(work: Promise<Value>): Promise<Value> {
    return bounded(work, this.#parts.operationTimeoutMs, () =>
      this.#noMajority('The catalog got no majority in time'),
    );
  }

  #unreachable(): ServerId[] {
    const { view, self } = this.#parts;
    return view.members.filter((member) => member !== self && !this.#parts.isConnected(member));
  }

  #noMajority(what: string): ServiceError {
    const unreachable = this.#unreachable();
    const missing = unreachable.length > 0 ? `cannot reach ${unreachable.join(', ')}` : 'no answer in time';
    return new ServiceError('no-majority', `${what}: ${missing}`, { unreachable, retryAfterMs: 1_000 });
  }
}
