import type { Planted } from './planted.ts';

/** Known bugs of the replica layer; see `planted.ts`. */
export const PLANTED_REPLICA: readonly Planted[] = [];
