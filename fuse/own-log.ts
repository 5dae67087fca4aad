import { constants, copyFileSync, fstatSync, ftruncateSync, readlinkSync, rmSync } from 'node:fs';
import type { Timer, World } from '../base/world.ts';
import { OWN_LOG_VARIABLE } from '../client/mounts/mount-log.ts';

const STDERR_FD = 2;
const CHECK_MS = 60_000;
/** The two log files together take at most twice this, plus what is logged in a minute. */
const BYTES_MAX = 4 * 1024 * 1024;

/**
 * This process's own log. A long one is copied to `….log.1` and truncated, since native code prints to the same
 * descriptor, which cannot change.
 */
export class OwnLog {
  readonly #bytesMax: number;
  readonly #timer: Timer | null;

  constructor(world: World, env: NodeJS.ProcessEnv = process.env, bytesMax = BYTES_MAX, checkMs = CHECK_MS) {
    this.#bytesMax = bytesMax;
    const isOwn = env[OWN_LOG_VARIABLE] === '1' && fstatSync(STDERR_FD).isFile();
    this.#timer = isOwn ? world.every(checkMs, () => this.#rotate()).unref() : null;
  }

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

/** The file may have been renamed since it was opened. */
function pathOf(): string {
  return readlinkSync(`/proc/self/fd/${STDERR_FD}`).replace(/ \(deleted\)$/, '');
}
