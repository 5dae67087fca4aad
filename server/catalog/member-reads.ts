import { ServiceError } from '../../base/errors.ts';
import type { World } from '../../base/world.ts';
import { UnfilledDirectory } from '../../catalog/clone-tables.ts';
import type { Query, QueryResults } from '../../wire/catalog-api.ts';
import type { ReplicaDriver } from '../drivers/replica-driver.ts';
import type { CatalogMetrics } from './catalog-metrics.ts';
import type { CatalogSubject } from './catalog-subject.ts';
import { ReadDemand } from './read-demand.ts';

export interface MemberReadsParts {
  readonly world: World;
  readonly driver: Pick<ReplicaDriver, 'role' | 'epoch' | 'readGate' | 'untilReadable'>;
  readonly subject: Pick<CatalogSubject, 'record' | 'query'>;
  readonly metrics?: Pick<CatalogMetrics, 'memberReads'>;
}

/**
 * Answers queries at a backup of the catalog under a read lease, as backups answer reads of files: while it runs, the
 * primary answers no command that this replica lacks (docs/replication.md, "Reads").
 */
export class MemberReads {
  readonly #parts: MemberReadsParts;
  readonly #demand = new ReadDemand();

  constructor(parts: MemberReadsParts) {
    this.#parts = parts;
  }

  /** Whether clients are to send further queries here: not while commands outnumber them, and the primary answers. */
  get invites(): boolean {
    const { driver, world } = this.#parts;
    return driver.role === 'backup' && this.#demand.levelAt(world.nowMs()) !== 'outnumbered';
  }

  /**
   * Answers a query from the replica here if it is a backup with a read lease, which it requests if many queries come.
   * @returns null if this server may not answer: the primary has to
   * @throws ServiceError the refusal of the query, for example `not-found`, once it is certain
   */
  async answer(query: Query): Promise<QueryResults[Query['kind']] | null> {
    const { world, driver, subject } = this.#parts;
    const { seq } = subject.record();
    if (this.#demand.count(world.nowMs(), seq) !== 'high') return null;
    // One tick decides what is read: the answer may show all operations applied here, committed or not.
    const { epoch } = driver;
    if (driver.readGate(seq) === 'not-primary') return null;
    const answer = attempt(() => subject.query(query));
    try {
      await driver.untilReadable(epoch, seq);
    } catch (error) {
      if (error instanceof ServiceError && error.code === 'not-primary') return null;
      throw error;
    }
    try {
      const answered = answer();
      this.#parts.metrics?.memberReads.add();
      return answered;
    } catch (error) {
      // The primary has the directory filled.
      if (error instanceof UnfilledDirectory) return null;
      throw error;
    }
  }
}

/** Runs the work now. @returns a function that returns its result, or throws its error */
function attempt<Value>(work: () => Value): () => Value {
  try {
    const value = work();
    return () => value;
  } catch (error) {
    return () => {
      throw error;
    };
  }
}
