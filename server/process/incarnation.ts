import type { Incarnation } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';

/** @returns a random integer from 1 to 2^53 − 1 */
export function drawIncarnation(world: World): Incarnation {
  for (;;) {
    const bytes = world.randomBytes(8);
    const drawn = bytes.readUInt32LE(0) + (bytes.readUInt32LE(4) & 0x1f_ffff) * 0x1_0000_0000;
    if (drawn >= 1) return drawn as Incarnation;
  }
}
