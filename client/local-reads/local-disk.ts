import { createHmac } from 'node:crypto';
import { close, constants, fstatSync, open, read } from 'node:fs';
import { open as openFile } from 'node:fs/promises';
import { join } from 'node:path';
import { releasableMemory, releaseMemory } from '../../base/releasable-memory.ts';
import type { Timer, World } from '../../base/world.ts';
import { crc32 } from '../../platform/crc32.ts';
import {
  CONTAINERS_FOLDER,
  containerName,
  type Extent,
  type FileLocations,
  LOCAL_PROOF_FILE,
  LOCAL_PROOF_TEXT,
} from '../../wire/locations.ts';

const CONTAINERS_OPEN_MAX = 32;
/** An unused container is closed after this long: an open one keeps its space after the server removes it. */
const IDLE_MS = 1_000;
const SECRET_BYTES = 64;
const SECRET = /^[0-9a-f]{64}$/;
/** Not through a link, which could lead outside the server's folder, and without waiting at a pipe. */
const FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;

interface OpenContainer {
  readonly fd: number;
  users: number;
  usedMs: number;
}

/** A server's data folder on this machine, read-only and not trusted: bytes count only with the reported checksum. */
export class LocalDisk {
  /** Proves to the server that its folder can be read here. */
  readonly proof: string;
  readonly #world: World;
  readonly #folder: string;
  /** Owner of the folder's files: a file of another owner is no container. */
  readonly #uid: number;
  readonly #containers = new Map<number, OpenContainer>();
  readonly #opening = new Map<number, Promise<OpenContainer | null>>();
  readonly #sweep: Timer;
  #closed = false;

  private constructor(world: World, folder: string, proof: string, uid: number) {
    this.#world = world;
    this.#folder = folder;
    this.proof = proof;
    this.#uid = uid;
    this.#sweep = world.every(IDLE_MS, () => this.#closeIdle(world.nowMs() - IDLE_MS)).unref();
  }

  /** Opens a server's folder. @returns null if this process cannot read it, or another folder has the name here */
  static async open(world: World, folder: string): Promise<LocalDisk | null> {
    try {
      const file = await openFile(join(folder, LOCAL_PROOF_FILE), FLAGS);
      try {
        const stat = await file.stat();
        const secret = stat.isFile() && stat.size === SECRET_BYTES ? await file.readFile('latin1') : '';
        // Nothing else is ever disclosed to a server, whatever folder it names.
        if (!SECRET.test(secret)) return null;
        const proof = createHmac('sha256', secret).update(LOCAL_PROOF_TEXT).digest('hex');
        return new LocalDisk(world, folder, proof, stat.uid);
      } finally {
        await file.close();
      }
    } catch (error) {
      if (error instanceof Error && 'code' in error) return null;
      throw error;
    }
  }

  get openCount(): number {
    return this.#containers.size;
  }

  /** Reads from `offset` to `end`. @returns memory that the caller releases; null if bytes are missing or differ */
  async read({ extents }: FileLocations, offset: number, end: number): Promise<Buffer | null> {
    const out = releasableMemory(end - offset);
    const wanted = extents.filter(({ begin, length }) => begin < end && begin + length > offset);
    fillHoles(out, wanted, offset, end);
    // All reads have ended when it resolves: the memory is free from then on.
    const found = await Promise.all(wanted.map((extent) => this.#read(extent, out, offset, end)));
    if (found.every((isGood) => isGood)) return out;
    releaseMemory(out);
    return null;
  }

  close(): void {
    this.#closed = true;
    this.#sweep.cancel();
    this.#closeIdle(Number.POSITIVE_INFINITY);
  }

  /** Reads an extent, always as a whole, since its checksum covers all of it; copies the wanted part to `out`. */
  async #read(extent: Extent, out: Buffer, offset: number, end: number): Promise<boolean> {
    const { begin, length, container, position, crc32: sum } = extent;
    const isWhole = begin >= offset && begin + length <= end;
    const bytes = isWhole ? out.subarray(begin - offset, begin - offset + length) : releasableMemory(length);
    const isThere = await this.#fill(container, position, bytes);
    const isGood = isThere && crc32(bytes) === sum;
    if (!isGood) this.#mismatch(container);
    if (isWhole) return isGood;
    const from = Math.max(begin, offset);
    out.set(bytes.subarray(from - begin, Math.min(begin + length, end) - begin), from - offset);
    releaseMemory(bytes);
    return isGood;
  }

  /** A checksum differed: closes the container, since its name may belong to another one by now. */
  #mismatch(container: number): void {
    const open = this.#containers.get(container);
    if (open !== undefined) this.#remove(container, open);
  }

  async #fill(container: number, position: number, bytes: Buffer): Promise<boolean> {
    const open = await this.#acquire(container);
    if (open === null) return false;
    try {
      for (let at = 0; at < bytes.length; ) {
        const count = await readAt(open.fd, bytes.subarray(at), position + at);
        if (count <= 0) return false;
        at += count;
      }
      return true;
    } finally {
      open.users--;
      open.usedMs = this.#world.nowMs();
      if (this.#containers.get(container) !== open) closeUnused(open);
    }
  }

  /** @returns the container, open while `users` counts the caller; closes those used longest ago if many are open */
  async #acquire(container: number): Promise<OpenContainer | null> {
    const known = this.#containers.get(container) ?? (await this.#open(container));
    if (known === null) return null;
    known.users++;
    this.#containers.delete(container);
    this.#containers.set(container, known);
    for (const [oldest, open] of this.#containers) {
      if (this.#containers.size <= CONTAINERS_OPEN_MAX) break;
      if (open.users === 0) this.#remove(oldest, open);
    }
    return known;
  }

  #open(container: number): Promise<OpenContainer | null> {
    let opening = this.#opening.get(container);
    if (opening === undefined) {
      opening = this.#openNew(container).finally(() => this.#opening.delete(container));
      this.#opening.set(container, opening);
    }
    return opening;
  }

  async #openNew(container: number): Promise<OpenContainer | null> {
    const fd = await openReading(join(this.#folder, CONTAINERS_FOLDER, containerName(container)));
    if (fd === null) return null;
    const opened: OpenContainer = { fd, users: 0, usedMs: this.#world.nowMs() };
    if (!this.#closed && isFileOf(fd, this.#uid)) {
      this.#containers.set(container, opened);
      return opened;
    }
    closeUnused(opened);
    return null;
  }

  #closeIdle(usedBeforeMs: number): void {
    for (const [container, open] of [...this.#containers]) {
      if (this.#closed || (open.users === 0 && open.usedMs <= usedBeforeMs)) this.#remove(container, open);
    }
  }

  /** Closes the container, or leaves that to its last reader. */
  #remove(container: number, open: OpenContainer): void {
    this.#containers.delete(container);
    closeUnused(open);
  }
}

function closeUnused({ fd, users }: OpenContainer): void {
  // A file that was only read cannot fail to close in a way that matters.
  if (users === 0) close(fd, () => undefined);
}

function openReading(path: string): Promise<number | null> {
  return new Promise((resolve) => open(path, FLAGS, (error, fd) => resolve(error === null ? fd : null)));
}

function isFileOf(fd: number, uid: number): boolean {
  try {
    const stat = fstatSync(fd);
    return stat.isFile() && stat.uid === uid;
  } catch (error) {
    if (error instanceof Error && 'code' in error) return false;
    throw error;
  }
}

function readAt(fd: number, bytes: Buffer, position: number): Promise<number> {
  return new Promise((resolve) =>
    read(fd, bytes, 0, bytes.length, position, (error, count) => resolve(error === null ? count : -1)),
  );
}

/** Fills the bytes outside all extents with zeros. */
function fillHoles(out: Buffer, extents: readonly Extent[], offset: number, end: number): void {
  let filledTo = offset;
  for (const { begin, length } of extents) {
    if (begin > filledTo) out.fill(0, filledTo - offset, begin - offset);
    filledTo = Math.max(filledTo, Math.min(begin + length, end));
  }
  if (filledTo < end) out.fill(0, filledTo - offset);
}
