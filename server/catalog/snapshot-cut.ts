import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { Command, Query, QueryResults } from '../../wire/catalog-api.ts';

/** Part of the time of an operation that files of a volume have to be settled in. */
const SETTLE_SHARE = 0.6;
/** Files that are settled at a time. */
const SETTLING_MAX = 64;
/** A file that could not be settled is asked again after so long, in milliseconds. */
const AGAIN_MS = 50;

type SnapshotCreate = Extract<Command, { kind: 'snapshot-create' }>;

export interface SnapshotCutParts {
  readonly operationTimeoutMs: number;
  readonly world: World;
  nowMs(): number;
  /** Reads from committed state, at the catalog's primary. */
  query<Q extends Query>(query: Q): QueryResults[Q['kind']];
  /** Has a file's primary tell the catalog all that it knows; whatever is written from then on asks the catalog before. */
  settle(file: FileId, timeoutMs: number): Promise<unknown>;
  /** Commands that were held may go on. */
  released(): void;
}

/** Files of the volume are being written: a snapshot would be of no single moment. */
class StillLive extends Error {
  readonly files: readonly FileId[];

  constructor(files: readonly FileId[]) {
    super(`${files.length} files are live`);
    this.files = files;
  }
}

/**
 * How a snapshot comes to be of one moment (decision 0043): while it is made, no file of its volume begins to be written, and those that are
 * being written are settled. What was acknowledged before is then in the catalog, and all that comes later asks the catalog first.
 */
export class SnapshotCut {
  readonly #parts: SnapshotCutParts;
  /** Volumes with a barrier, and how many snapshots wait behind it. */
  readonly #barriers = new Map<string, number>();

  constructor(parts: SnapshotCutParts) {
    this.#parts = parts;
  }

  get isUp(): boolean {
    return this.#barriers.size > 0;
  }

  /**
   * Whether a command has to wait, because it would let a file of a volume with a barrier be written. One that is live is waited for,
   * so its primary may go on.
   */
  holds(command: Command): boolean {
    if (!this.isUp) return false;
    switch (command.kind) {
      case 'create-file':
        return this.#isBarred(
          'volume' in command.place ? command.place.volume : this.#inode(command.place.parent)?.volume,
        );
      case 'open-for-write': {
        const attributes = this.#inode(command.inode);
        return attributes?.live === false && this.#isBarred(attributes.volume);
      }
      case 'replace':
      case 'trash-restore': {
        const attributes = this.#inode(command.inode);
        return attributes?.live === true && this.#isBarred(attributes.volume);
      }
      default:
        return false;
    }
  }

  /** To be called in the turn in which the command is executed. @throws StillLive */
  assertStill({ volume }: SnapshotCreate): void {
    const live = orNull(() => this.#parts.query({ kind: 'live-files', volume, countMax: 1_000 }));
    if (live !== null && live.inodes.length > 0) throw new StillLive(live.inodes as readonly FileId[]);
  }

  /** From now on files of the volume are not begun to be written, until it was lowered as often. */
  raise(volume: string): void {
    this.#barriers.set(volume, (this.#barriers.get(volume) ?? 0) + 1);
  }

  lower(volume: string): void {
    const left = (this.#barriers.get(volume) ?? 1) - 1;
    if (left === 0) this.#barriers.delete(volume);
    else this.#barriers.set(volume, left);
    this.#parts.released();
  }

  /**
   * @param execute executes the command, once, unless files are live then
   * @throws ServiceError `precondition-failed` where a file cannot be settled in time; nothing was made then
   */
  async make<Result>(command: SnapshotCreate, execute: () => Promise<Result>): Promise<Result> {
    const { nowMs, operationTimeoutMs } = this.#parts;
    const untilMs = nowMs() + operationTimeoutMs * SETTLE_SHARE;
    this.raise(command.volume);
    try {
      for (;;) {
        try {
          return await execute();
        } catch (error) {
          if (!(error instanceof StillLive)) throw error;
          await this.#settleAll(command, error.files, untilMs);
        }
      }
    } finally {
      this.lower(command.volume);
    }
  }

  async #settleAll(command: SnapshotCreate, files: readonly FileId[], untilMs: number): Promise<void> {
    const { nowMs, settle } = this.#parts;
    const ahead = [...files];
    const failed: { readonly file: FileId; readonly error: ServiceError }[] = [];
    const work = async (): Promise<void> => {
      for (let file = ahead.pop(); file !== undefined; file = ahead.pop()) {
        const settling = file;
        await settle(settling, Math.max(1, untilMs - nowMs())).catch((error: unknown) => {
          if (!(error instanceof ServiceError)) throw error;
          failed.push({ file: settling, error });
        });
      }
    };
    await Promise.all(Array.from({ length: SETTLING_MAX }, work));
    const [first] = failed;
    if (nowMs() >= untilMs) {
      const file = first?.file ?? (files[0] as FileId);
      const why = first?.error.message ?? 'it is written all the time';
      throw new ServiceError(
        'precondition-failed',
        `Cannot make the snapshot ${command.volume}@${command.name}: ${this.#describe(file)} cannot be settled (${why}). Nothing was made`,
      );
    }
    if (first !== undefined) await this.#parts.world.sleep(AGAIN_MS);
  }

  #describe(file: FileId): string {
    const [found] = this.#parts.query({ kind: 'paths', inodes: [file] }).paths;
    return found === undefined ? `file ${file}` : `${found.volume}:${found.path}`;
  }

  #isBarred(volume: string | undefined): boolean {
    return volume !== undefined && this.#barriers.has(volume);
  }

  #inode(inode: number): { readonly volume: string; readonly live: boolean } | undefined {
    return orNull(() => this.#parts.query({ kind: 'attributes', inode }))?.attributes;
  }
}

/** What is not there is said by the command itself, in its place in the order. */
function orNull<Answer>(ask: () => Answer): Answer | null {
  try {
    return ask();
  } catch (error) {
    if (error instanceof ServiceError) return null;
    throw error;
  }
}
