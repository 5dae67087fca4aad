import { constants } from 'node:fs';
import { ErrnoError } from './errno.ts';
import type { FileSystemCalls } from './transport.ts';

/** Calls that begin a change. Those that complete one (`flush`, `persist`, `release`) always pass. */
const CHANGES = [
  ...(['setAttributes', 'setFlags', 'touchStatus', 'truncate', 'setXattr', 'removeXattr'] as const),
  ...(['create', 'createUnnamed', 'makeNode', 'makeDirectory', 'symlink', 'link'] as const),
  ...(['unlink', 'removeDirectory', 'rename'] as const),
  ...(['write', 'allocate', 'copyRange'] as const),
] satisfies readonly (keyof FileSystemCalls)[];

const OPENS_TO_CHANGE = constants.O_WRONLY | constants.O_RDWR | constants.O_TRUNC;

type Call = (...args: never[]) => Promise<unknown>;

export class WriteGate {
  #isOpen = true;
  #underWay = 0;
  readonly #waiting: (() => void)[] = [];

  get isOpen(): boolean {
    return this.#isOpen;
  }

  open(): void {
    this.#isOpen = true;
  }

  /** Refuses changes with `EROFS` from now on. Resolves when all changes under way are answered. */
  async close(): Promise<void> {
    this.#isOpen = false;
    if (this.#underWay > 0) await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  /** The same calls, of which changes pass this gate. */
  over(calls: FileSystemCalls): FileSystemCalls {
    const changes = CHANGES.map((name) => [name, this.#guarded(calls[name] as Call)]);
    const open = this.#guarded(calls.open as Call) as FileSystemCalls['open'];
    return {
      ...calls,
      ...(Object.fromEntries(changes) as Pick<FileSystemCalls, (typeof CHANGES)[number]>),
      open: (inode, flags, caller) =>
        (flags & OPENS_TO_CHANGE) === 0 ? calls.open(inode, flags, caller) : open(inode, flags, caller),
    };
  }

  #guarded(call: Call): Call {
    return (...args) => {
      if (!this.#isOpen) return Promise.reject(new ErrnoError('EROFS', 'The mount is read-only'));
      const answered = call(...args);
      this.#underWay++;
      // Not awaited: the caller's answer must not wait for it.
      answered.then(this.#answered, this.#answered);
      return answered;
    };
  }

  readonly #answered = (): void => {
    this.#underWay--;
    if (this.#underWay > 0) return;
    for (const resolve of this.#waiting.splice(0)) resolve();
  };
}
