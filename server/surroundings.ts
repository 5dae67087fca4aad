import type { Logger } from 'pino';
import type { World } from '../base/world.ts';
import type { Machine } from './machine.ts';

/** What a server has from the process that it runs in: the program gives the system's, a simulation its own. */
export interface Surroundings {
  readonly world: World;
  readonly log: Logger;
  /** Absent: sockets of this machine. */
  readonly machine?: Machine;
  /** Takes a broken invariant; it ends the process, because a restart is safe. */
  fatal(error: unknown): void;
}
