import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import { stillLive } from '../../catalog/commands/set-attributes.ts';
import type { Command, Query, QueryResults } from '../../wire/catalog-api.ts';

/** Part of the operation time-out in which files have to be settled. */
const SETTLE_SHARE = 0.6;
const SETTLING_MAX = 64;
const RETRY_MS = 50;

/** A command that is executed only while no file of its scope is live. */
export type BarrierCommand = Extract<Command, { kind: 'snapshot-create' | 'set-flags' | 'retain' }>;
type Scope = string | number;

export interface WriteBarrierParts {
  readonly operationTimeoutMs: number;
  readonly world: World;
  nowMs(): number;
  /** Reads from committed state, at the catalog's primary. */
  query<Q extends Query>(query: Q): QueryResults[Q['kind']];
  /** Has a file's primary settle the file. The file's next change then waits for a mark of the catalog. */
  settle(file: FileId, timeoutMs: number): Promise<unknown>;
  released(): void;
}

class FilesLive extends Error {
  readonly files: readonly FileId[];

  constructor(files: readonly FileId[]) {
    super(`${files.length} files are live`);
    this.files = files;
  }
}

export function needsBarrier(command: Command): command is BarrierCommand {
  return command.kind === 'snapshot-create' || command.kind === 'set-flags' || command.kind === 'retain';
}

/**
 * Has all files of a scope settled before a command: while the barrier of its scope is up, no file of the scope becomes
 * live. So a snapshot is of one moment (decision 0043): the catalog has all changes acknowledged before, and later ones
 * ask the catalog first. New flags and retentions apply to all later changes: a primary orders no change without a mark
 * (`open-for-write`), and each later mark is set under them, also for a delayed change or an earlier primary.
 */
export class WriteBarrier {
  readonly #parts: WriteBarrierParts;
  readonly #scopes = new Map<Scope, number>();

  constructor(parts: WriteBarrierParts) {
    this.#parts = parts;
  }

  get isUp(): boolean {
    return this.#scopes.size > 0;
  }

  /**
   * Whether a command has to wait, because a file of a scope with a barrier would become live by it. The primary of a
   * live file may get its mark again: its settling waits for changes in progress.
   */
  isBarred(command: Command): boolean {
    if (!this.isUp) return false;
    switch (command.kind) {
      case 'create-file':
        return this.#isBarred(
          'volume' in command.place ? command.place.volume : this.#inode(command.place.parent)?.volume,
        );
      case 'open-for-write': {
        const attributes = this.#inode(command.inode);
        return (
          attributes?.live === false && (this.#isBarred(attributes.volume) || this.#isBarred(command.inode))
        );
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

  /** Checks that no file of the scope is live, in the tick in which the command is executed. @throws FilesLive */
  assertStill(command: BarrierCommand): void {
    const live = this.#liveFiles(command);
    if (live.length > 0) throw new FilesLive(live);
  }

  /**
   * Raises the barrier and calls `execute`; while that fails with `FilesLive`, settles these files and calls it again.
   * @throws ServiceError if a file cannot be settled in time; the command was not executed then
   */
  async executeWhenSettled<Result>(command: BarrierCommand, execute: () => Promise<Result>): Promise<Result> {
    const { nowMs, operationTimeoutMs, world } = this.#parts;
    const untilMs = nowMs() + operationTimeoutMs * SETTLE_SHARE;
    const scope = command.kind === 'snapshot-create' ? command.volume : command.inode;
    this.#scopes.set(scope, (this.#scopes.get(scope) ?? 0) + 1);
    try {
      for (let isFirst = true; ; isFirst = false) {
        try {
          return await execute();
        } catch (error) {
          if (!(error instanceof FilesLive)) throw error;
          const failed = await this.#settleAll(error.files, untilMs);
          const file = failed?.file ?? (error.files[0] as FileId);
          if (nowMs() >= untilMs) throw this.#refusal(command, file, failed?.error);
          if (!isFirst || failed !== undefined) await world.sleep(RETRY_MS);
        }
      }
    } finally {
      const left = (this.#scopes.get(scope) ?? 1) - 1;
      if (left === 0) this.#scopes.delete(scope);
      else this.#scopes.set(scope, left);
      this.#parts.released();
    }
  }

  /** Has the files settled until `untilMs`. @returns the first that could not be, with the error */
  async #settleAll(
    files: readonly FileId[],
    untilMs: number,
  ): Promise<{ readonly file: FileId; readonly error: ServiceError } | undefined> {
    const { nowMs, settle } = this.#parts;
    const remaining = [...files];
    const failed: { readonly file: FileId; readonly error: ServiceError }[] = [];
    const work = async (): Promise<void> => {
      for (let file = remaining.pop(); file !== undefined; file = remaining.pop()) {
        const settling = file;
        await settle(settling, Math.max(1, untilMs - nowMs())).catch((error: unknown) => {
          if (!(error instanceof ServiceError)) throw error;
          failed.push({ file: settling, error });
        });
      }
    };
    await Promise.all(Array.from({ length: SETTLING_MAX }, work));
    return failed[0];
  }

  #refusal(command: BarrierCommand, file: FileId, error: ServiceError | undefined): ServiceError {
    if (command.kind !== 'snapshot-create') return error ?? stillLive(file);
    const why = error?.message ?? 'it is being written';
    return new ServiceError(
      'precondition-failed',
      `Cannot create the snapshot ${command.volume}@${command.name}: ${this.#describe(file)} cannot be ` +
        `settled (${why}). No snapshot was created; retry, or stop the writer`,
    );
  }

  #describe(file: FileId): string {
    const [found] = this.#parts.query({ kind: 'paths', inodes: [file] }).paths;
    return found === undefined ? `file ${file}` : `${found.volume}:${found.path}`;
  }

  #liveFiles(command: BarrierCommand): readonly FileId[] {
    if (command.kind !== 'snapshot-create')
      return this.#inode(command.inode)?.live === true ? [command.inode as FileId] : [];
    const { volume } = command;
    const live = orNull(() => this.#parts.query({ kind: 'live-files', volume, countMax: 1_000 }));
    return (live?.inodes ?? []) as readonly FileId[];
  }

  #isBarred(scope: Scope | undefined): boolean {
    return scope !== undefined && this.#scopes.has(scope);
  }

  #inode(inode: number): { readonly volume: string; readonly live: boolean } | undefined {
    return orNull(() => this.#parts.query({ kind: 'attributes', inode }))?.attributes;
  }
}

/** @returns null if the query fails: the command then reports the error when it is executed */
function orNull<Answer>(ask: () => Answer): Answer | null {
  try {
    return ask();
  } catch (error) {
    if (error instanceof ServiceError) return null;
    throw error;
  }
}
