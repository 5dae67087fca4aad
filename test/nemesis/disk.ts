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
/** The part that is written by a program: allocated space of this size might be used up before. */
const SLACK_BYTES = 2 * 1024 * 1024;
const PIECE = Buffer.alloc(4096, 1);
/** If a disk refuses to allocate even such a part of its free space, all of it is written. */
const SMALLEST_PART = 1 / 32;
/** EXT4_IOC_SHUTDOWN with the flag that also drops the file system's own journal. */
const CUT = `
import fcntl, os, struct, sys
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587d, struct.pack('I', 2))`;

/** The disk of one server. */
export interface Disk {
  /** The server's data folder. */
  readonly data: string;
  /** Uses up all free space but `leftBytes`, until `relieve`. */
  fill(leftBytes: number): void;
  relieve(): void;
  /** Drops what was not synced, as a loss of power does. No server may use the disk. */
  losePower(): void;
  remove(): void;
}

/** A folder on this machine's disk: it cannot be filled, or lose its power. */
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

/** A file system of its own, in an image file. */
export class ImageDisk implements Disk {
  readonly data: string;
  readonly #image: string;
  readonly #mount: string;

  /** @param sizeBytes of the image, which is sparse: only written parts use space below */
  constructor(folder: string, sizeBytes = IMAGE_BYTES_DEFAULT) {
    this.#image = join(folder, 'image');
    this.#mount = join(folder, 'disk');
    this.data = join(this.#mount, 'data');
    mkdirSync(this.#mount, { recursive: true });
    writeFileSync(this.#image, '');
    truncateSync(this.#image, sizeBytes);
    // No blocks are reserved for root, who runs the servers here.
    run('mkfs.ext4', ['-q', '-F', '-m', '0', '-E', 'lazy_itable_init=0,lazy_journal_init=0', this.#image]);
    run('mount', ['-o', 'loop', this.#image, this.#mount]);
  }

  /** @returns why disk images are not possible here, or null; creates one to find out */
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

  /** @returns why a loss of power cannot be injected here, or null */
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
      // The free space that is left is less than a block, or reserved by the file system: the disk is full.
      if (!(error instanceof Error && 'code' in error && error.code === 'ENOSPC')) throw error;
    }
  }

  /**
   * Allocates most of the free space without writing it. A server uses space at the same time, and the file system
   * needs some itself: if less is free than expected, it allocates less.
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
    // Also while a server that is about to end has open files.
    run('umount', ['--lazy', this.#mount]);
  }
}

/**
 * Changes the boot id in the folder. A server concludes from another boot id that it may have lost power, and this
 * machine does not boot again.
 */
export function forgetBoot(data: string): void {
  const file = join(data, 'META');
  const meta = JSON.parse(readFileSync(file, 'utf8')) as Record<string, unknown>;
  if (typeof meta.bootId !== 'string') throw new Error(`${file} knows of no boot`);
  writeFileSync(file, JSON.stringify({ ...meta, bootId: 'before the power was cut' }), { flush: true });
}
