import { ServiceError } from '../../base/errors.ts';
import type { Log } from '../transport.ts';
import type { FlushScope, PendingKind } from './pending-ops.ts';
import { SendQueue } from './send-queue.ts';

/** Settles under way; the backend batches them. */
const PARALLEL_MAX = 500;
/** The file is removed, or another client has written it and will settle it. */
const NEEDLESS: ReadonlySet<string> = new Set(['not-found', 'precondition-failed']);

export interface ClosedFile {
  readonly inode: number;
  readonly isToBeSealed: boolean;
  seal(): Promise<void>;
  settle(): Promise<void>;
}

interface Settle {
  readonly parent: 0;
  readonly bytes: 0;
  readonly file: ClosedFile;
  readonly isSealing: boolean;
  readonly over: Promise<void>;
  readonly end: () => void;
}

/** Closed files that are sealed, if they are to be, and settled in the background. Until then their primary answers. */
export class Settles implements PendingKind {
  readonly #log: Log;
  readonly #pending = new Set<Settle>();
  readonly #queue = new SendQueue<Settle>({
    ...{ requestsMax: PARALLEL_MAX, countMax: 1, gatheredBytes: 0, gathersTick: true },
    send: ([settle]) => this.#send(settle),
  });

  constructor(log: Log) {
    this.#log = log;
  }

  add(file: ClosedFile): void {
    const { promise: over, resolve: end } = Promise.withResolvers<void>();
    const settle: Settle = { parent: 0, bytes: 0, file, isSealing: file.isToBeSealed, over, end };
    this.#pending.add(settle);
    this.#queue.add(settle);
  }

  async #send(settle: Settle | undefined): Promise<void> {
    if (settle === undefined) return;
    const { file, isSealing, end } = settle;
    try {
      if (isSealing) await file.seal();
      await file.settle();
    } catch (error) {
      if (!(error instanceof ServiceError) || !NEEDLESS.has(error.code)) {
        const what = isSealing ? 'sealed and settled' : 'settled';
        this.#log('warn', `a closed file is not ${what}`, { file: file.inode, error: String(error) });
      }
    }
    this.#pending.delete(settle);
    end();
  }

  /** Resolves when the seals of the file that are queued or under way have ended. */
  async sealed(inode: number): Promise<void> {
    await Promise.all(this.#of(inode).map(({ isSealing, over }) => (isSealing ? over : undefined)));
  }

  /** Resolves when these files, and those closed meanwhile, are settled or have failed. */
  async flush(scope: FlushScope): Promise<void> {
    for (;;) {
      const pending = scope.kind === 'inode' ? this.#of(scope.inode) : [...this.#pending];
      if (pending.length === 0) return;
      await Promise.all(pending.map(({ over }) => over));
    }
  }

  #of(inode: number): Settle[] {
    return [...this.#pending].filter(({ file }) => file.inode === inode);
  }
}
