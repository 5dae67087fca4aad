import { Prng } from '../../../base/prng.ts';

/**
 * @returns a generator of its own for `purpose`: draws for one purpose do not depend on those for others, so that a
 * fault or program can be left out of a run without a change of the rest
 */
export function derived(seed: number, purpose: string): Prng {
  let hash = 0x811c9dc5 ^ seed ^ Math.trunc(seed / 0x1_0000_0000);
  for (let at = 0; at < purpose.length; at++) hash = Math.imul(hash ^ purpose.charCodeAt(at), 0x01000193);
  return new Prng(hash >>> 0);
}
