import type { Logger } from 'pino';
import type { World } from '../../base/world.ts';
import type { Machine } from './machine.ts';

/** What a server gets from its process; replaced in simulations. */
export interface Surroundings {
  readonly world: World;
  readonly log: Logger;
  readonly machine?: Machine;
  /** Handles a broken invariant; it ends the process, because a restart is safe. */
  fatal(error: unknown): void;
}
