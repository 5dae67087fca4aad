/** Returns how many bits of 32 are set. */
export function bitCount(bits: number): number {
  let count = bits - ((bits >>> 1) & 0x5555_5555);
  count = (count & 0x3333_3333) + ((count >>> 2) & 0x3333_3333);
  return Math.imul((count + (count >>> 4)) & 0x0f0f_0f0f, 0x0101_0101) >>> 24;
}

/** Returns the place of the lowest set bit of 32, from 0. @param bits not 0 */
export function lowestBit(bits: number): number {
  return 31 - Math.clz32(bits & -bits);
}
