import { assert } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import { CATALOG_CELL, type ServerId } from '../../base/ids.ts';
import type { View } from '../../replica/actions.ts';
import type {
  Command,
  CommandRequest,
  CommandResults,
  Query,
  QueryResults,
  ServerInfo,
} from '../../wire/catalog-api.ts';
import { PrimaryWaiter, type PrimaryWaiterParts } from '../primary-waiter.ts';
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
type CommandResult = CommandResults[Command['kind']];

interface Waiting {
  readonly request: CommandRequest;
  readonly chars: number;
  resolve(result: CommandResult): void;
  reject(error: unknown): void;
}

export interface CatalogServiceParts extends PrimaryWaiterParts {
  readonly driver: ReplicaDriver;
  readonly subject: CatalogSubject;
  /** Which servers hold a new file of a volume with that many replicas. */
  placement(replicas: number, servers: readonly ServerInfo[]): ServerId[];
  /** How many servers can hold replicas. */
  capacity?(servers: readonly ServerInfo[]): number;
}

/** The namespace as this server, one of the catalog's members, can serve it. */
export class LocalCatalogService implements CatalogService {
  readonly #parts: CatalogServiceParts;
  readonly #waiter: PrimaryWaiter;
  #queue: Waiting[] = [];
  #executing = false;
  /** Since when, and when last, somebody who waits here saw no majority; kept, so that not each of them waits anew. */

  constructor(parts: CatalogServiceParts) {
    this.#parts = parts;
    this.#waiter = new PrimaryWaiter(parts);
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
    const { driver, subject } = this.#parts;
    // What a primary applies last is committed: nothing that is seen waits for anybody.
    await this.#bounded(driver.committed(driver.epoch, 0));
    return subject.query(query);
  }

  async flush(): Promise<void> {
    await this.#primary();
    await this.#bounded(this.#parts.driver.flush());
  }

  async changeMembers(members: readonly ServerId[]): Promise<View> {
    await this.#primary();
    return this.#parts.driver.changeMembers(members);
  }

  status(): { primary: ServerId | null; epoch: number; seq: number; members: readonly ServerId[] } {
    const { lease, driver } = this.#parts;
    const { epoch, seq, view } = driver.status();
    return { primary: lease.view(CATALOG_CELL).holder, epoch: epoch.counter, seq, members: view.members };
  }

  get #view(): View {
    return this.#parts.subject.record().view;
  }

  #isPrimary(): boolean {
    return this.#parts.driver.leads;
  }

  /** Resolves where this server is the catalog's primary; waits for a coming election, within bounds. */
  #primary(): Promise<void> {
    return this.#waiter.primary(this.#parts.driver, 'the catalog', false);
  }

  /** A batch may be executed in the turn in which this resolves, if this server is still the primary. */
  async #ready(): Promise<void> {
    const { driver, subject } = this.#parts;
    for (;;) {
      await subject.ready();
      // A change of members has a place in the order, too: a batch is not executed before it is applied.
      if (!driver.leads || driver.orderedSeq === driver.status().seq) return;
      await driver.change();
    }
  }

  /** One batch at a time: while one is replicated, the next one gathers. */
  async #pump(): Promise<void> {
    if (this.#executing) return;
    this.#executing = true;
    try {
      while (this.#queue.length > 0) {
        await this.#ready();
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
        {
          nowNs: this.#parts.clock.wallNs(),
          placement: (replicas, servers) => this.#parts.placement(replicas, servers),
          capacity: (servers) => this.#parts.capacity?.(servers) ?? Number.POSITIVE_INFINITY,
        },
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

  #bounded<Value>(work: Promise<Value>): Promise<Value> {
    return this.#waiter.bounded(work, this.#view, 'the catalog');
  }
}
