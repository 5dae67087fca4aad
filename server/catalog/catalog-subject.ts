import { assert } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import type { NameChange } from '../../catalog/change-record.ts';
import type { CommandContext } from '../../catalog/command.ts';
import type { CatalogNumbers } from '../../catalog/inode-numbers.ts';
import type { Outcome } from '../../catalog/sessions.ts';
import { type Epoch, epochCompare, type Position, positionCompare } from '../../replica/epoch.ts';
import type { Operation } from '../../replica/operation.ts';
import type { ReplicaRecord, Trust } from '../../replica/record.ts';
import { ByteReader, ByteWriter } from '../../wire/bytes.ts';
import type { CommandRequest, Query, QueryResults, TreeChange } from '../../wire/catalog-api.ts';
import type { CallSource, FetchedState, Subject } from '../drivers/subject.ts';
import type { CatalogChanges } from '../storage/catalog-changes.ts';
import type { TransferCounts } from '../storage/catalog-pages.ts';
import { DamagedCopy } from '../storage/catalog-snapshots.ts';
import type { CatalogStore } from '../storage/catalog-store.ts';
import {
  decodeCompared,
  decodeComparison,
  decodeDescription,
  decodePageNumbers,
  decodeTail,
  encodeCompared,
  encodeComparison,
  encodePageNumbers,
  encodeTail,
  type StagedCatalog,
} from '../storage/catalog-transfer.ts';

const PIECE_BYTES = 1024 * 1024;
/** Servers of earlier releases hold all of the log that they lack in memory, and install it at once. */
const EARLIER_TAIL_BYTES_MAX = 16 * 1024 * 1024;
const NOTHING = new Uint8Array(0);

/** A batch executed at the primary; the body is null if there is nothing to replicate. */
export interface Execution {
  readonly body: Uint8Array | null;
  readonly outcomes: readonly Outcome[];
  readonly touched: readonly (readonly number[])[];
  /** By place: directories to be filled before these requests are executed, which are not part of the batch. */
  readonly unfilled?: ReadonlyMap<number, number>;
}

/**
 * The catalog as the subject of a replica. Its primary executes a batch in a transaction that stays open until a
 * majority has the batch: readers see nothing that may vanish, and a batch without a majority is rolled back.
 */
export class CatalogSubject implements Subject {
  readonly appliesAtPrimary = 'last';
  readonly #store: CatalogStore;
  readonly #transferred: (counts: TransferCounts) => void;
  #executed: Uint8Array | null = null;
  #staged: StagedCatalog | null = null;
  /** Number of the latest fetch: the result of an earlier one is discarded. */
  #fetch = 0;

  /** @param transferred called after the transfer of a copy, with what it has cost */
  constructor(store: CatalogStore, transferred: (counts: TransferCounts) => void = () => undefined) {
    this.#store = store;
    this.#transferred = transferred;
  }

  record(): ReplicaRecord {
    return this.#store.record();
  }

  trust(): Trust {
    return this.#store.trust();
  }

  query(query: Query): QueryResults[Query['kind']] {
    return this.#store.query(query);
  }

  /** @see leavingInodes */
  leavingInodes(): ((inode: number) => boolean) | null {
    return this.#store.leavingInodes();
  }

  /** Where the catalog is in its inode numbers, after the open batch if there is one. */
  numbers(): CatalogNumbers {
    return this.#store.numbers();
  }

  get changes(): CatalogChanges {
    return this.#store.changes;
  }

  changesBelow(directory: number, recursive: boolean, changes: readonly NameChange[]): TreeChange[] {
    return this.#store.changesBelow(directory, recursive, changes);
  }

  /** Whether a batch, or another change, may begin. */
  get isReady(): boolean {
    return this.#store.isReady;
  }

  ready(): Promise<void> {
    return this.#store.ready();
  }

  /** If the batch has a body, its transaction is open until the operation with this body is applied or abandoned. */
  execute(requests: readonly CommandRequest[], context: CommandContext): Execution {
    assert(!this.#store.inTransaction, 'One batch is executed at a time');
    this.#store.begin();
    const execution = this.#store.execute(requests, context);
    if (execution.body === null) this.#store.rollback();
    this.#executed = execution.body;
    return execution;
  }

  /** If a batch is open, writes its log entry into the transaction already, while the backups execute it. */
  prepare(): void {
    if (this.#executed !== null) this.#store.prepare();
  }

  async promise(epoch: Epoch): Promise<void> {
    this.abandon();
    await this.#store.promise(epoch);
  }

  /** Applies an operation. What `execute` has executed here, as primary, is still an open transaction: commits that. */
  async apply(epoch: Epoch, seq: number, operation: Operation): Promise<void> {
    if (this.#executed !== null && operation.body === this.#executed) {
      this.#executed = null;
      await this.#store.finish(epoch, seq);
      return;
    }
    await this.#store.apply(epoch, seq, operation.body, operation.view ?? null);
  }

  flush(): Promise<void> {
    return this.#store.flush();
  }

  /** Fetches a piece of the log, if the source still has it and the local state is undamaged; else a whole copy. */
  async fetch(ask: CallSource): Promise<FetchedState> {
    const fetchNumber = ++this.#fetch;
    this.abandon();
    await this.#unstage();
    const tail = this.#store.damage.isKnown ? null : await this.#fetchTail(ask);
    const staged = tail ?? (await this.#fetchSnapshot(ask));
    if (fetchNumber !== this.#fetch) {
      await this.#store.unstage(staged);
      throw new ServiceError('precondition-failed', 'A later fetch of the catalog superseded this one');
    }
    this.#staged = staged;
    const { position, view } = staged;
    const isPart = staged.kind === 'tail' && staged.isPart;
    return { position, view, sessions: new Uint8Array(0), isPart };
  }

  /** Installs the base of `epoch`: the fetched state, or this replica's own. Its position is then (epoch, `seq`). */
  async install(epoch: Epoch, seq: number, _sessions: Uint8Array, fetched: boolean): Promise<void> {
    this.abandon();
    const staged = this.#staged;
    assert(!fetched || staged !== null, 'What is installed was fetched before');
    this.#staged = null;
    await this.#store.install(epoch, seq, fetched ? staged : null);
    if (!fetched && staged !== null) await this.#store.unstage(staged);
  }

  async installPart(position: Position): Promise<void> {
    this.abandon();
    const staged = this.#staged;
    assert(
      staged !== null && positionCompare(staged.position, position) === 0,
      'It is the part fetched last',
    );
    this.#staged = null;
    await this.#store.installPart(staged);
  }

  async serve(method: string, payload: Uint8Array): Promise<Uint8Array> {
    switch (method) {
      case 'tail':
        return this.#serveTail(payload, EARLIER_TAIL_BYTES_MAX);
      case 'tail-part':
        return this.#serveTail(payload, Infinity);
      case 'snapshot': {
        const { id, bytes } = await this.#store.snapshot();
        return new ByteWriter(16).uint53(id).uint53(bytes).finish();
      }
      case 'snapshot-piece': {
        const reader = new ByteReader(payload);
        const id = reader.uint53();
        const offset = reader.uint53();
        reader.end();
        return this.#store.readSnapshot(id, offset, PIECE_BYTES);
      }
      case 'snapshot-compare':
        return encodeCompared(await this.#store.comparePages(decodeComparison(payload)));
      case 'snapshot-pages': {
        const { id, pages: numbers } = decodePageNumbers(payload);
        return this.#store.readPages(id, numbers);
      }
      case 'snapshot-damaged':
        await this.#store.checkSnapshot(new ByteReader(payload).uint53());
        return new Uint8Array(0);
      case 'snapshot-end':
        await this.#store.closeSnapshot(new ByteReader(payload).uint53());
        return new Uint8Array(0);
      default:
        throw new ServiceError('bad-request', `Unknown catalog fetch method "${method}"`);
    }
  }

  #serveTail(payload: Uint8Array, bytesMax: number): Uint8Array {
    const { last } = decodeDescription(payload);
    const tail = this.#store.bytesAfter(last) > bytesMax ? null : this.#store.tail(last, PIECE_BYTES);
    return tail === null ? NOTHING : encodeTail(tail);
  }

  abandon(): void {
    this.#executed = null;
    this.#store.rollback();
  }

  /** Fetches a piece of the log that follows the state here. @returns null if the source's log does not */
  async #fetchTail(ask: CallSource): Promise<StagedCatalog | null> {
    const here = this.#store.describe();
    const answer = await ask('tail-part', here).catch((error: unknown) => {
      if (!isUnknownMethod(error)) throw error;
      return ask('tail', here);
    });
    if (answer.length === 0) return null;
    const staged = this.#store.stageTail(decodeTail(answer));
    // What this replica has stamped is of a later epoch than operations of the source: its history is another one.
    const isOlder = epochCompare(staged.position.epoch, this.#store.record().installed) < 0;
    return isOlder ? null : staged;
  }

  async #fetchSnapshot(ask: CallSource): Promise<StagedCatalog> {
    const reader = new ByteReader(await ask('snapshot', new Uint8Array(0)));
    const id = reader.uint53();
    const bytes = reader.uint53();
    const named = new ByteWriter(8).uint53(id).finish();
    try {
      const staged = await this.#stageCopy(ask, id, bytes);
      // The copy is whole and checked. A source that does not learn of its end closes it after some more copies, or
      // removes it at its next start.
      await ask('snapshot-end', named).catch(() => undefined);
      return staged;
    } catch (error) {
      // SQLite copies pages without checking them: the source may not know that one of its own is damaged.
      if (error instanceof DamagedCopy) await ask('snapshot-damaged', named);
      throw error;
    }
  }

  /** Fetches the pages of a snapshot that differ from those here; all of it from a server of an earlier release. */
  async #stageCopy(ask: CallSource, id: number, bytes: number): Promise<StagedCatalog> {
    try {
      const { staged, counts } = await this.#store.stagePages({
        bytes,
        compare: async (firstRange, hashes) =>
          decodeCompared(await ask('snapshot-compare', encodeComparison({ id, firstRange, hashes }))),
        pages: (numbers) => ask('snapshot-pages', encodePageNumbers(id, numbers)),
      });
      this.#transferred(counts);
      return staged;
    } catch (error) {
      if (!isUnknownMethod(error)) throw error;
    }
    const staged = await this.#store.stageSnapshot(pieces(ask, id, bytes));
    this.#transferred({ bytes, pagesCompared: 0, pagesFetched: 0, bytesFetched: bytes });
    return staged;
  }

  async #unstage(): Promise<void> {
    const staged = this.#staged;
    this.#staged = null;
    if (staged !== null) await this.#store.unstage(staged);
  }
}

/** Whether the source is of an earlier release. */
function isUnknownMethod(error: unknown): boolean {
  return error instanceof ServiceError && error.code === 'bad-request';
}

async function* pieces(ask: CallSource, id: number, bytes: number): AsyncGenerator<Uint8Array> {
  for (let offset = 0; offset < bytes; ) {
    const piece = await ask('snapshot-piece', new ByteWriter(16).uint53(id).uint53(offset).finish());
    if (piece.length === 0) throw new ServiceError('storage', 'A copy of the catalog ended early');
    yield piece;
    offset += piece.length;
  }
}
