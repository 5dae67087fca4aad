import { constants, copyFileSync, fstatSync, ftruncateSync, readlinkSync, rmSync } from 'node:fs';
import type { Timer, World } from '../base/world.ts';
import { OWN_LOG_VARIABLE } from '../client/mount-log.ts';

const STDERR_FD = 2;
const CHECK_MS = 60_000;
/** A log and the one before it take twice this at the most, and what comes in a minute. */
const BYTES_MAX = 4 * 1024 * 1024;

/**
 * The log of this process, where it was made for it alone. It is copied to `….log.1` and begun anew when it has become long: what
 * native code prints goes to the same descriptor, which therefore stays.
 */
export class OwnLog {
  readonly #bytesMax: number;
  readonly #timer: Timer | null;

  constructor(world: World, env: NodeJS.ProcessEnv = process.env, bytesMax = BYTES_MAX, checkMs = CHECK_MS) {
    this.#bytesMax = bytesMax;
    const isOwn = env[OWN_LOG_VARIABLE] === '1' && fstatSync(STDERR_FD).isFile();
    this.#timer = isOwn ? world.every(checkMs, () => this.#rotate()).unref() : null;
  }

  /** The mount has ended in good order: nobody needs its log. */
  remove(): void {
    if (this.#timer === null) return;
    this.#timer.cancel();
    const path = pathOf();
    rmSync(path, { force: true });
    rmSync(`${path}.1`, { force: true });
  }

  #rotate(): void {
    if (fstatSync(STDERR_FD).size < this.#bytesMax) return;
    const path = pathOf();
    rmSync(`${path}.1`, { force: true });
    copyFileSync(path, `${path}.1`, constants.COPYFILE_EXCL);
    ftruncateSync(STDERR_FD);
  }
}

/** It may have been given another name since it was opened. */
function pathOf(): string {
  return readlinkSync(`/proc/self/fd/${STDERR_FD}`).replace(/ \(deleted\)$/, '');
}
