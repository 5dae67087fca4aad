import { type Attributes, type BackendFile, contentVersionCompare, type FileState } from './backend.ts';
import { withDeadline } from './deadline.ts';
import { type ReadAhead, type ReadPosition, ReadSource } from './read-ahead.ts';
import { type DirtyBudget, WriteBehind } from './write-behind.ts';

/** How long a question about a file waits for its writes under way before it is answered from here. */
const DRAIN_FOR_ATTRIBUTES_MS = 1000;

/** A file that is open on this mount, however often: its writes under way and what is known of its contents. */
export class OpenFile {
  readonly inode: number;
  readonly source: ReadSource;
  readonly writes: WriteBehind;
  readonly #backend: BackendFile;
  readonly #limitMs: number;
  /** Handles in all, and those among them that write. */
  handleCount = 0;
  writerCount = 0;
  /** Written here, and so to be sealed at its last close, if its policy says so. */
  #written = false;
  /** Created or changed here, and the catalog was not told of the outcome yet. */
  unsettled = false;
  /** As last heard of; permission bits for clearing set-user-id, and the version of what was read. */
  attributes: Attributes;
  /** The newest state that the primary told of, if it is newer than `attributes`. */
  #state: FileState | undefined;
  /** When the last dirty byte was written, for as long as the primary's time for it is not known. */
  #writtenNs = 0n;
  #appended: Promise<unknown> = Promise.resolve();

  constructor(attributes: Attributes, backend: BackendFile, budget: DirtyBudget, limitMs: number) {
    this.inode = attributes.inode;
    this.attributes = attributes;
    this.#backend = backend;
    this.#limitMs = limitMs;
    this.source = new ReadSource(
      (offset, length) => this.#bounded(backend.read(offset, length), 'A read'),
      () => this.#sizeBytes(),
    );
    this.writes = new WriteBehind({
      write: (offset, bytes) => backend.write(offset, bytes),
      acknowledged: (state) => this.#changed(state),
      budget,
      limitMs,
    });
  }

  async read(
    readAhead: ReadAhead,
    position: ReadPosition,
    offset: number,
    length: number,
  ): Promise<Uint8Array> {
    // Beyond the size the cluster knows, a hole before dirty bytes would read as the end of the file.
    if (this.writes.dirty && (this.writes.overlaps(offset, length) || offset + length > this.#sizeBytes())) {
      await this.writes.drain();
    }
    return readAhead.read(this.source, position, offset, length);
  }

  async write(offset: number, bytes: Uint8Array): Promise<void> {
    this.source.changed();
    this.#writtenNs = nowNs();
    await this.writes.write(offset, bytes);
  }

  /** Appends go out one by one, each in one piece, after everything that was written before. */
  append(bytes: Uint8Array): Promise<void> {
    const appended = this.#appended.then(async () => {
      await this.writes.drain();
      this.#changed(await this.#bounded(this.#backend.append(bytes), 'An append'));
    });
    this.#appended = appended.catch(() => undefined);
    return appended;
  }

  async truncate(sizeBytes: number): Promise<void> {
    await this.writes.drain();
    this.#changed(await this.#bounded(this.#backend.truncate(sizeBytes), 'A truncate'));
  }

  async persist(): Promise<void> {
    this.#learn(await this.#bounded(this.#backend.flush(), 'A flush'));
  }

  /**
   * Whether the last close seals it. An empty file stays open to whoever fills it later, for many programs make a
   * name first; and one of which bytes were lost stays as it is.
   */
  get isToBeSealed(): boolean {
    const isWhole = this.writes.errorCount === 0;
    return this.attributes.policy === 'read-only' && this.#written && isWhole && this.#sizeBytes() > 0;
  }

  async seal(): Promise<void> {
    await this.#bounded(this.#backend.seal(), 'Sealing');
  }

  async settle(): Promise<void> {
    await this.#bounded(this.#backend.settle(), 'Settling');
  }

  async state(): Promise<FileState> {
    await this.writes.drain();
    const state = await this.#bounded(this.#backend.state(), 'Asking for the state');
    this.#learn(state);
    return state;
  }

  /**
   * Puts `attributes`, as the cluster told them, together with what only this mount knows. Bytes under way
   * are waited for, so that the modification time is the primary's and does not change once they are there;
   * while the cluster is slow to take them, size and time are those of this mount.
   *
   * @param ask asks the cluster again, after bytes under way have arrived
   */
  async present(attributes: Attributes): Promise<Attributes> {
    if (this.writes.dirty) {
      await withDeadline(this.writes.drain(), DRAIN_FOR_ATTRIBUTES_MS, 'Draining').catch(() => undefined);
    }
    if (contentVersionCompare(attributes.contents, this.attributes.contents) !== 0) {
      // Somebody changed it, perhaps we: blocks read before may be old.
      this.source.changed();
    }
    this.attributes = attributes;
    const state = this.#state;
    let presented = attributes;
    if (state !== undefined && contentVersionCompare(state.contents, attributes.contents) > 0) {
      presented = { ...attributes, ...pick(state) };
    } else {
      this.#state = undefined;
    }
    if (!this.writes.dirty) return presented;
    return {
      ...presented,
      sizeBytes: Math.max(presented.sizeBytes, this.writes.dirtyEnd),
      modifiedNs: String(this.#writtenNs),
    };
  }

  /** Our own change of what a change of contents does not touch. */
  changed({ mode, uid, gid }: Attributes): void {
    this.attributes = { ...this.attributes, mode, uid, gid };
  }

  #sizeBytes(): number {
    return this.#state?.sizeBytes ?? this.attributes.sizeBytes;
  }

  #changed(state: FileState): void {
    this.unsettled = true;
    this.#written = true;
    this.#learn(state);
  }

  /** Answers of writes in parallel arrive in any order: the newest counts. */
  #learn(state: FileState): void {
    this.source.changed();
    const known = this.#state?.contents ?? this.attributes.contents;
    if (contentVersionCompare(state.contents, known) >= 0) this.#state = pick(state);
  }

  #bounded<Value>(promise: Promise<Value>, what: string): Promise<Value> {
    return withDeadline(promise, this.#limitMs, `${what} of file ${this.inode}`);
  }
}

function pick(state: FileState): FileState {
  return { sizeBytes: state.sizeBytes, modifiedNs: state.modifiedNs, contents: state.contents };
}

/** The present, as far as this machine's clock knows it. */
export function nowNs(): bigint {
  return BigInt(Date.now()) * 1_000_000n;
}
