import { BoundedMap } from '../../base/bounded-map.ts';

/** Inodes whose errors are kept apart from those of others. */
const INODES_MAX = 1_000;

/** What a descriptor is open on: a file or a directory, by its inode; the whole volume, by its root. */
export type ErrorScope = number | 'volume';

/** Where an operation failed. */
export interface FailedPlace {
  readonly kind: 'file' | 'directory';
  readonly inode: number;
}

interface Recorded {
  readonly kind: FailedPlace['kind'] | 'volume';
  readonly error: unknown;
  /** Its position in the sequence. */
  readonly position: number;
  /** A program has learned of it. */
  isSeen: boolean;
}

/**
 * Errors of operations that were acknowledged and then failed, one sequence for a mount, in the manner of Linux' `errseq_t`
 * (include/linux/errseq.h): `fsync` of a descriptor returns an error once that occurred since the descriptor's last `fsync`, or since it
 * was opened, or earlier where no program has learned of it. The latest error of an inode stands for all of its errors.
 *
 * As `mapping_set_error` of Linux, an error of a file or a directory is also one of the volume, which `fsync` of the root returns
 * (`syncfs`). Beyond Linux, an error that `write` or `close` has returned counts as seen by descriptors that are opened later.
 */
export class ErrorSequence {
  /** By inode, the latest last. */
  readonly #byInode = new BoundedMap<number, Recorded>(INODES_MAX, (_, oldest) => {
    const older = oldest.kind === 'file' ? 'file' : 'directory';
    this.#older[older] = { ...oldest, isSeen: oldest.isSeen && (this.#older[older]?.isSeen ?? true) };
  });
  /** The latest of inodes that are not kept apart any more. Every directory returns that of directories, and only the volume that of files. */
  readonly #older: { directory: Recorded | null; file: Recorded | null } = { directory: null, file: null };
  /** The latest one of the whole volume, which every directory and file returns. */
  #ofVolume: Recorded | null = null;
  #position = 0;

  /** Of the latest error; 0 before the first. */
  get position(): number {
    return this.#position;
  }

  /** `errseq_set` */
  set(place: FailedPlace | 'volume', error: unknown): void {
    const kind = place === 'volume' ? place : place.kind;
    const recorded: Recorded = { kind, error, position: ++this.#position, isSeen: false };
    if (place === 'volume') {
      this.#ofVolume = recorded;
      return;
    }
    this.#byInode.set(place.inode, recorded);
  }

  /** `errseq_sample`: the position of a descriptor that is opened now, before the errors that no program has learned of. */
  sample(scope: ErrorScope): number {
    const unseen = this.#of(scope).filter(({ isSeen }) => !isSeen);
    return Math.min(this.#position, ...unseen.map(({ position }) => position - 1));
  }

  /** `errseq_check`: the latest error of the inode alone after a position; undefined where there is none. */
  check(inode: number, since: number): unknown {
    const own = this.#byInode.get(inode);
    return own !== undefined && own.position > since ? own.error : undefined;
  }

  /** A program has learned of what `check` returned. */
  see(inode: number): void {
    const own = this.#byInode.get(inode);
    if (own !== undefined) own.isSeen = true;
  }

  /** `errseq_check_and_advance`: the latest error after a position, and its own position; null where there is none. */
  checkAndAdvance(
    scope: ErrorScope,
    since: number,
  ): { readonly error: unknown; readonly position: number } | null {
    const later = this.#of(scope).filter(({ position }) => position > since);
    const latest = later.sort((one, other) => one.position - other.position).at(-1);
    for (const recorded of later) recorded.isSeen = true;
    return latest === undefined ? null : { error: latest.error, position: latest.position };
  }

  #of(scope: ErrorScope): Recorded[] {
    const { directory, file } = this.#older;
    if (scope === 'volume')
      return [
        ...present(directory, file, this.#ofVolume),
        ...this.#byInode.entries().map(([, recorded]) => recorded),
      ];
    const own = this.#byInode.get(scope);
    return present(own, this.#ofVolume, own?.kind === 'file' ? null : directory);
  }
}

/** What one descriptor has learned of the errors of what it is open on. */
export class ErrorCursor {
  readonly #errors: ErrorSequence;
  readonly #scope: ErrorScope;
  #since: number;
  /** `write` and `close` return no errors from before the descriptor was opened. */
  readonly #opened: number;

  constructor(errors: ErrorSequence, scope: ErrorScope) {
    this.#errors = errors;
    this.#scope = scope;
    this.#since = errors.sample(scope);
    this.#opened = errors.position;
  }

  /** The latest error of the inode since the last `fsync`, of which the program does not learn now. */
  peek(): unknown {
    if (this.#scope === 'volume') return undefined;
    return this.#errors.check(this.#scope, Math.max(this.#opened, this.#since));
  }

  /** As `peek`, for `write` and `close`, which return it until `fsync` has. */
  check(): unknown {
    const error = this.peek();
    if (error !== undefined && this.#scope !== 'volume') this.#errors.see(this.#scope);
    return error;
  }

  /** For `fsync`: the latest error since the last `fsync`, once. */
  checkAndAdvance(): unknown {
    const found = this.#errors.checkAndAdvance(this.#scope, this.#since);
    if (found !== null) this.#since = found.position;
    return found?.error;
  }
}

function present(...recorded: readonly (Recorded | null | undefined)[]): Recorded[] {
  return recorded.filter((known) => known !== null && known !== undefined);
}
