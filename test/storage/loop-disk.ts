import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { mounted, renewImage } from './mounts.ts';
import { temporaryFolder } from './stores.ts';

/** EXT4_IOC_SHUTDOWN (the same number for XFS) with the flag that also drops the file system's own journal. */
const CUT = `
import fcntl, os, struct, sys
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587d, struct.pack('I', 2))`;

const MAKERS = {
  ext4: ['mkfs.ext4', '-q', '-F', '-E', 'lazy_itable_init=0,lazy_journal_init=0'],
  xfs: ['mkfs.xfs', '-q', '-f'],
} as const;

export type FileSystemKind = keyof typeof MAKERS;

/** Of `stat`. */
const BLOCK_BYTES = 512;
const MEMORY = '/dev/shm';

/**
 * A folder for a copy that is read once. In memory, if there is enough free space, recovering and unmounting it takes
 * no disk's time.
 */
function copyFolder(bytes: number): string {
  if (!fs.existsSync(MEMORY)) return temporaryFolder();
  const { bavail, bsize } = fs.statfsSync(MEMORY);
  return bavail * bsize > 2 * bytes
    ? fs.mkdtempSync(path.join(MEMORY, 'leasehold-store-'))
    : temporaryFolder();
}

/**
 * A real, separate file system, in an image behind a loop device, to which a test may do any harm: cut its power, fill
 * it, make it read-only, remove the bytes below it. No layer in between is simulated.
 */
export class LoopDisk {
  /** Where it is mounted. */
  readonly folder: string;
  readonly #parent: string;
  readonly #image: string;
  readonly #options: string;

  private constructor(parent: string, folder: string | null, kind: FileSystemKind) {
    this.#parent = parent;
    this.#image = path.join(parent, 'image');
    this.#options = kind === 'ext4' ? 'loop,errors=remount-ro' : 'loop';
    this.folder = folder ?? path.join(parent, 'mount');
  }

  /**
   * @param folder where to mount it; null for a new folder
   * @returns null, and why, if this machine does not permit it: no root, no loop devices, no mkfs
   */
  static make(
    kind: FileSystemKind,
    sizeMiB: number,
    folder: string | null = null,
  ): { disk: LoopDisk; why: null } | { disk: null; why: string } {
    if (process.getuid?.() !== 0) return { disk: null, why: 'needs root' };
    const disk = new LoopDisk(temporaryFolder(), folder, kind);
    fs.writeFileSync(disk.#image, '');
    fs.truncateSync(disk.#image, sizeMiB * 1024 * 1024);
    const [program, ...flags] = MAKERS[kind];
    const made = spawnSync(program, [...flags, disk.#image], { encoding: 'utf8' });
    if (made.status === 0 && disk.#mount()) return { disk, why: null };
    fs.rmSync(disk.#parent, { recursive: true });
    return { disk: null, why: made.status === 0 ? 'needs loop devices' : `needs ${program}` };
  }

  /**
   * What was not synced is lost, contents and names alike; every call fails from now on, until `repower`.
   * @returns false if the kernel or this machine's tools do not know how
   */
  cutPower(): boolean {
    return spawnSync('python3', ['-c', CUT, this.folder]).status === 0;
  }

  /**
   * @returns another disk with what this one would have if its power failed now: what was submitted to the device. This
   * one stays in use. Nothing may be writing to it
   */
  ifPowerFailed(): LoopDisk {
    const copy = new LoopDisk(copyFolder(fs.statSync(this.#image).blocks * BLOCK_BYTES), null, 'ext4');
    const copied = spawnSync('cp', ['--sparse=always', this.#image, copy.#image], { encoding: 'utf8' });
    if (copied.status !== 0) throw new Error(`Cannot copy ${this.#image}: ${copied.stderr}`);
    if (!copy.#mount()) throw new Error(`Cannot mount a copy of ${this.#image}`);
    return copy;
  }

  /** Mounts it again as the next boot of the machine would. No process has anything open on it. */
  repower(): void {
    this.#unmount();
    renewImage(this.#image);
    if (!this.#mount()) throw new Error(`Cannot mount ${this.#image} again`);
  }

  /**
   * What ext4 does when it meets an error on its disk: from now on it is read-only, with files open or not.
   * @returns false if the kernel does not permit to trigger it
   */
  failReadOnly(): boolean {
    const found = spawnSync('findmnt', ['-no', 'SOURCE', this.folder], { encoding: 'utf8' });
    const trigger = `/sys/fs/ext4/${path.basename(found.stdout.trim())}/trigger_fs_error`;
    if (found.status !== 0 || !fs.existsSync(trigger)) return false;
    fs.writeFileSync(trigger, 'a test');
    return true;
  }

  /** Removes it with all its files. */
  remove(): void {
    this.#unmount();
    fs.rmSync(this.#parent, { recursive: true });
  }

  /**
   * The same after an error, while files are open on it: the test should report that error, and not that the disk is in
   * use.
   */
  abandon(): void {
    spawnSync('umount', ['-l', this.folder]);
    fs.rmSync(this.#parent, { recursive: true });
  }

  #mount(): boolean {
    return mounted(this.folder, ['-o', this.#options, this.#image]) !== null;
  }

  #unmount(): void {
    const undone = spawnSync('umount', [this.folder], { encoding: 'utf8' });
    if (undone.status !== 0) throw new Error(`Cannot unmount ${this.folder}: ${undone.stderr}`);
  }
}
