import { BoundedMap } from '../../base/bounded-map.ts';

const INODES_MAX = 1_000;

/** What a descriptor is open on: an inode, or with the root the volume. */
export type ErrorScope = number | 'volume';

export interface FailedPlace {
  readonly kind: 'file' | 'directory';
  readonly inode: number;
}

interface Recorded {
  readonly kind: FailedPlace['kind'] | 'volume';
  readonly error: unknown;
  readonly position: number;
  isSeen: boolean;
}

/**
 * Errors of acknowledged operations, one sequence for a mount, like `errseq_t` of Linux (include/linux/errseq.h):
 * `fsync` of a descriptor returns once the latest error since its last `fsync` or its open, or an earlier one that no
 * program got. The latest error of an inode replaces its earlier ones.
 * As with `mapping_set_error` of Linux, errors of inodes are also errors of the volume, which `fsync` of the root
 * returns (`syncfs`). Beyond Linux, an error that `write` or `close` returned counts as seen for later opens.
 */
export class ErrorSequence {
  readonly #byInode = new BoundedMap<number, Recorded>(INODES_MAX, (_, oldest) => {
    const older = oldest.kind === 'file' ? 'file' : 'directory';
    this.#older[older] = { ...oldest, isSeen: oldest.isSeen && (this.#older[older]?.isSeen ?? true) };
  });
  /** The latest of other inodes: one for all directories, one for files, which only the volume returns. */
  readonly #older: { directory: Recorded | null; file: Recorded | null } = { directory: null, file: null };
  /** The latest of the volume itself; every directory and file returns it. */
  #ofVolume: Recorded | null = null;
  #position = 0;

  get position(): number {
    return this.#position;
  }

  /** `errseq_set`: records an error of acknowledged operations. */
  set(place: FailedPlace | 'volume', error: unknown): void {
    const kind = place === 'volume' ? place : place.kind;
    const recorded: Recorded = { kind, error, position: ++this.#position, isSeen: false };
    if (place === 'volume') {
      this.#ofVolume = recorded;
      return;
    }
    this.#byInode.set(place.inode, recorded);
  }

  /** `errseq_sample`: the position for a descriptor that is opened now, before all errors that no program got. */
  sample(scope: ErrorScope): number {
    const unseen = this.#of(scope).filter(({ isSeen }) => !isSeen);
    return Math.min(this.#position, ...unseen.map(({ position }) => position - 1));
  }

  /** `errseq_check`: the latest error of the inode alone after a position; undefined if there is none. */
  check(inode: number, since: number): unknown {
    const own = this.#byInode.get(inode);
    return own !== undefined && own.position > since ? own.error : undefined;
  }

  see(inode: number): void {
    const own = this.#byInode.get(inode);
    if (own !== undefined) own.isSeen = true;
  }

  /** `errseq_check_and_advance`: the latest error after a position, with its position; null if there is none. */
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

/** The errors that one descriptor has returned. */
export class ErrorCursor {
  readonly #errors: ErrorSequence;
  readonly #scope: ErrorScope;
  #since: number;
  /** `write` and `close` return no errors from before the open. */
  readonly #opened: number;

  constructor(errors: ErrorSequence, scope: ErrorScope) {
    this.#errors = errors;
    this.#scope = scope;
    this.#since = errors.sample(scope);
    this.#opened = errors.position;
  }

  /** The latest error of the inode since the last `fsync`, without marking it as seen. */
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
