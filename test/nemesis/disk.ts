import {
  closeSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  statfsSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { renewImage } from '../storage/mounts.ts';
import { canRun, isRoot, run } from './system.ts';

const IMAGE_BYTES_DEFAULT = 256 * 1024 * 1024;
/** What a filler takes by writing: room that is set aside for it may be gone before it is taken. */
const SLACK_BYTES = 2 * 1024 * 1024;
const PIECE = Buffer.alloc(4096, 1);
/** A disk that refuses to set so small a part of its free room aside gets all of it written. */
const SMALLEST_PART = 1 / 32;
/** EXT4_IOC_SHUTDOWN with the flag that also drops the file system's own journal. */
const CUT = `
import fcntl, os, struct, sys
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587d, struct.pack('I', 2))`;

/** The disk of one server. */
export interface Disk {
  /** The server's data folder. */
  readonly data: string;
  /** Takes all room but so many bytes, until `relieve`. */
  fill(leftBytes: number): void;
  relieve(): void;
  /** Forgets what was not synced, as a machine does that loses its power. No server may run on it. */
  losePower(): void;
  remove(): void;
}

/** A folder among others: neither full nor without power. */
export class FolderDisk implements Disk {
  readonly data: string;

  constructor(folder: string) {
    this.data = join(folder, 'data');
  }

  fill(): void {
    throw new Error('The disk of all is not filled');
  }

  relieve(): void {}

  losePower(): void {
    throw new Error('The disk of all keeps its power');
  }

  remove(): void {}
}

/** A file system of its own, in a file. */
export class ImageDisk implements Disk {
  readonly data: string;
  readonly #image: string;
  readonly #mount: string;

  /** @param sizeBytes taken of the disk below only where something is written */
  constructor(folder: string, sizeBytes = IMAGE_BYTES_DEFAULT) {
    this.#image = join(folder, 'image');
    this.#mount = join(folder, 'disk');
    this.data = join(this.#mount, 'data');
    mkdirSync(this.#mount, { recursive: true });
    writeFileSync(this.#image, '');
    truncateSync(this.#image, sizeBytes);
    // No blocks set aside for root, who runs the servers here.
    run('mkfs.ext4', ['-q', '-F', '-m', '0', '-E', 'lazy_itable_init=0,lazy_journal_init=0', this.#image]);
    run('mount', ['-o', 'loop', this.#image, this.#mount]);
  }

  /** @returns why disks of their own cannot be made here, or null; makes one to find out */
  static obstacle(): string | null {
    if (process.platform !== 'linux' || !isRoot()) return 'disks of their own need root on Linux';
    const folder = mkdtempSync(join(tmpdir(), 'leasehold-disk-'));
    try {
      new ImageDisk(folder).remove();
      return null;
    } catch (error) {
      return error instanceof Error ? error.message : String(error);
    } finally {
      rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
    }
  }

  /** @returns why power cannot be cut here, or null */
  static powerObstacle(): string | null {
    return canRun('python3', ['-c', 'import fcntl'])
      ? null
      : 'there is no "python3" to shut a file system down with';
  }

  fill(leftBytes: number): void {
    this.#setAside(leftBytes);
    try {
      const fd = openSync(this.#filler, 'a');
      try {
        while (this.#freeBytes() > leftBytes) writeSync(fd, PIECE);
      } finally {
        closeSync(fd);
      }
    } catch (error) {
      // What is counted as free and cannot be had is below a block, or the file system needs it itself: it is full.
      if (!(error instanceof Error && 'code' in error && error.code === 'ENOSPC')) throw error;
    }
  }

  /**
   * Takes most of the room without writing; the rest is for small pieces. A server takes room at the same time, and
   * the file system some for itself, so that there may be less than was free just now: then less is asked for.
   */
  #setAside(leftBytes: number): void {
    let lengthBytes = 0;
    for (let part = 1; part >= SMALLEST_PART; ) {
      const bytes = Math.floor((this.#freeBytes() - leftBytes - SLACK_BYTES) * part);
      if (bytes < SLACK_BYTES) return;
      const range = ['--offset', String(lengthBytes), '--length', String(bytes)];
      if (canRun('fallocate', [...range, this.#filler])) lengthBytes += bytes;
      else part /= 2;
    }
  }

  #freeBytes(): number {
    const { bavail, bsize } = statfsSync(this.#mount);
    return bavail * bsize;
  }

  relieve(): void {
    rmSync(this.#filler, { force: true });
  }

  get #filler(): string {
    return join(this.#mount, 'filler');
  }

  losePower(): void {
    run('python3', ['-c', CUT, this.#mount]);
    run('umount', [this.#mount]);
    renewImage(this.#image);
    run('mount', ['-o', 'loop', this.#image, this.#mount]);
    forgetBoot(this.data);
  }

  remove(): void {
    // Also while a server that was just told to end still has files open.
    run('umount', ['--lazy', this.#mount]);
  }
}

/**
 * A server concludes from another boot id that it may have lost power. This machine goes on, so the folder
 * is made to remember another boot.
 */
export function forgetBoot(data: string): void {
  const file = join(data, 'META');
  const meta = JSON.parse(readFileSync(file, 'utf8')) as Record<string, unknown>;
  if (typeof meta.bootId !== 'string') throw new Error(`${file} knows of no boot`);
  writeFileSync(file, JSON.stringify({ ...meta, bootId: 'before the power was cut' }), { flush: true });
}
