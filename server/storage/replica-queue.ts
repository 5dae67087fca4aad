import type { FileId } from '../../base/ids.ts';
import type { Epoch } from '../../replica/epoch.ts';
import { type FileOperation, partsWritten } from '../../wire/file-operation.ts';
import { removedBy, sizeAfter } from './contents.ts';
import { storageError } from './failures.ts';
import type { Gate } from './gate.ts';
import type { ObjectEntry } from './object-entry.ts';
import type { FetchedObject, FileDifference } from './store.ts';

const BATCH_COUNT_MAX = 256;
const BATCH_BYTES_MAX = 8 * 1024 * 1024;

export interface Waiter {
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

export interface ApplyItem extends Waiter {
  readonly kind: 'apply';
  readonly epoch: Epoch;
  readonly seq: number;
  readonly operation: FileOperation;
  readonly sessions: Uint8Array;
}

export interface StageItem extends Waiter {
  readonly kind: 'stage';
  readonly object: FetchedObject;
  /** No server has the bytes: these replace them, and do not match the checksum. */
  readonly isLost?: true;
}

export interface InstallItem extends Waiter {
  readonly kind: 'install';
  readonly epoch: Epoch;
  readonly seq: number;
  readonly sessions: Uint8Array;
  readonly base: FileDifference | null;
}

export interface CreationItem extends Waiter {
  readonly kind: 'create-with-contents';
  readonly epoch: Epoch;
  readonly operations: readonly FileOperation[];
  readonly gate: Gate;
}

export type Item =
  | ApplyItem
  | CreationItem
  | StageItem
  | InstallItem
  | (Waiter & { readonly kind: 'repair'; readonly object: FetchedObject })
  | (Waiter & { readonly kind: 'unstage'; readonly keeps: (entry: ObjectEntry) => boolean })
  | (Waiter & { readonly kind: 'promise'; readonly epoch: Epoch })
  | (Waiter & { readonly kind: 'create' | 'flush' | 'slice' | 'trim' | 'remove' });

export type ItemRequest = Item extends infer Kind
  ? Kind extends Item
    ? Omit<Kind, keyof Waiter>
    : never
  : never;

const ACTIONS = {
  apply: 'apply an operation to',
  'create-with-contents': 'create',
  stage: 'stage objects of',
  repair: 'repair an object of',
  install: 'install a state of',
  promise: 'store a promise for',
  create: 'create',
  flush: 'sync',
  unstage: 'forget staged objects of',
  slice: 'delete old rows of',
  trim: 'trim',
  remove: 'remove',
} as const satisfies Record<Item['kind'], string>;

/** Requests whose failure does not matter to later ones. */
const INDEPENDENT: ReadonlySet<Item['kind']> = new Set(['stage', 'repair', 'slice', 'trim']);

interface ReplicaQueueOptions {
  readonly file: FileId;
  sizeBytes(): number;
  /** Executes the batch and settles its items; if it throws, it has settled none of them. */
  perform(batch: readonly Item[]): Promise<void>;
  idle(): void;
}

/** Serializes the requests to one replica, in batches, so that there is a single order. */
export class ReplicaQueue {
  readonly #options: ReplicaQueueOptions;
  #items: Item[] = [];
  #running = false;

  constructor(options: ReplicaQueueOptions) {
    this.#options = options;
  }

  get idle(): boolean {
    return !this.#running && this.#items.length === 0;
  }

  /** Queues a request behind all earlier ones; settles with its outcome. */
  submit(request: ItemRequest): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#items.push({ ...request, resolve, reject } as Item);
      if (!this.#running) {
        this.#running = true;
        void this.#run();
      }
    });
  }

  async #run(): Promise<void> {
    // Requests of the same tick may share a transaction.
    await Promise.resolve();
    while (this.#items.length > 0) {
      const batch = this.#items.splice(0, batchLength(this.#items, this.#options.sizeBytes()));
      try {
        await this.#options.perform(batch);
      } catch (cause) {
        const first = batch[0] as Item;
        const error = storageError(`Cannot ${ACTIONS[first.kind]} file ${this.#options.file}`, cause);
        // Operations after a failed one must not happen either.
        const rest = INDEPENDENT.has(first.kind) ? [] : this.#items.splice(0);
        for (const item of [...batch, ...rest]) item.reject(error);
      }
    }
    this.#running = false;
    this.#options.idle();
  }
}

function batchLength(items: readonly Item[], sizeBytes: number): number {
  const first = items[0] as Item;
  if (first.kind === 'apply') return applyLength(items, sizeBytes);
  let count = 1;
  if (first.kind === 'stage') {
    let byteCount = first.object.bytes.length;
    for (; count < items.length && count < BATCH_COUNT_MAX; count++) {
      const item = items[count] as Item;
      if (item.kind !== 'stage') break;
      byteCount += item.object.bytes.length;
      if (byteCount > BATCH_BYTES_MAX) break;
    }
  } else if (first.kind === 'create' || first.kind === 'promise') {
    while (count < BATCH_COUNT_MAX && joinsCreation(items[count])) count++;
  }
  return count;
}

/** @returns how many operations are the next batch: `preserve`, or one that removes bytes, is a batch by itself */
function applyLength(items: readonly Item[], sizeBytes: number): number {
  let size = sizeBytes;
  let byteCount = 0;
  let count = 0;
  for (; count < items.length && count < BATCH_COUNT_MAX; count++) {
    const item = items[count] as Item;
    if (item.kind !== 'apply' || item.operation.kind === 'preserve') break;
    if (removedBy(item.operation, size) !== null) break;
    byteCount += partsWritten(item.operation).reduce((sum, { bytes }) => sum + bytes.length, 0);
    if (count > 0 && byteCount > BATCH_BYTES_MAX) break;
    size = sizeAfter(size, item.operation);
  }
  return Math.max(1, count);
}

/** @returns whether the item may share the transaction of a `create` or `promise` before it: it replaces no contents */
function joinsCreation(item: Item | undefined): boolean {
  if (item?.kind === 'install') return item.base === null && item.seq === 0;
  return item?.kind === 'promise';
}
