import type { Timer, World } from '../../base/world.ts';
import type { FileSystemBackend } from '../backend.ts';
import { isNotFound } from '../errno.ts';
import type { Log } from '../transport.ts';

const KEEP_INTERVAL_MS = 30_000;
/** Rounds between checks for files that other clients have unlinked; short compared with `--gc-grace`. */
const ROUNDS_PER_QUERY = 4;
const QUERIES_PARALLEL = 4;

/** Keeps unlinked open files from being removed; requests find those that other clients have unlinked. */
export class UnlinkedFiles {
  readonly #backend: Pick<FileSystemBackend, 'attributes' | 'keepOrphan'>;
  readonly #openInodes: () => Iterable<number>;
  readonly #log: Log;
  readonly #known = new Set<number>();
  readonly #unnamed = new Set<number>();
  readonly #timer: Timer;
  #rounds = 0;

  constructor(
    world: World,
    backend: Pick<FileSystemBackend, 'attributes' | 'keepOrphan'>,
    openInodes: () => Iterable<number>,
    log: Log,
  ) {
    this.#backend = backend;
    this.#openInodes = openInodes;
    this.#log = log;
    this.#timer = world.every(KEEP_INTERVAL_MS, () => void this.#round());
  }

  has(inode: number): boolean {
    return this.#known.has(inode);
  }

  add(inode: number): void {
    this.#known.add(inode);
  }

  addUnnamed(inode: number): void {
    this.#known.add(inode);
    this.#unnamed.add(inode);
  }

  /** Whether the file was created unlinked, and never had a name. */
  isUnnamed(inode: number): boolean {
    return this.#unnamed.has(inode);
  }

  /** The file has a name, or is closed. */
  delete(inode: number): void {
    this.#known.delete(inode);
    this.#unnamed.delete(inode);
  }

  stop(): void {
    this.#timer.cancel();
  }

  /** Queries the open files, which other clients may have unlinked; forgets those that are closed. */
  async findUnlinked(): Promise<void> {
    // A copy, since files are opened and closed meanwhile. The workers share the iterator.
    const inodes = [...this.#openInodes()].values();
    const worker = async (): Promise<void> => {
      for (const inode of inodes) {
        if (this.#known.has(inode)) continue;
        try {
          const { links } = await this.#backend.attributes(inode);
          if (links === 0) this.#known.add(inode);
        } catch (error) {
          this.#logFailure(inode, error);
        }
      }
    };
    await Promise.all(Array.from({ length: QUERIES_PARALLEL }, worker));
    const open = new Set(this.#openInodes());
    for (const inode of this.#known) if (!open.has(inode)) this.delete(inode);
  }

  async keep(): Promise<void> {
    for (const inode of this.#known) {
      await this.#backend.keepOrphan(inode).catch((error: unknown) => this.#logFailure(inode, error));
    }
  }

  async #round(): Promise<void> {
    this.#rounds += 1;
    if (this.#rounds % ROUNDS_PER_QUERY === 0) await this.findUnlinked();
    await this.keep();
  }

  #logFailure(inode: number, error: unknown): void {
    const facts = { file: inode, error: String(error) };
    if (isNotFound(error)) this.#log('error', 'an unlinked open file was removed', facts);
    else this.#log('warn', 'an unlinked open file may be removed', facts);
  }
}
