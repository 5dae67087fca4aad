/**
 * A well-mixed number from 0 to 2^53 − 1 for a text: two lanes of 32 bits, each mixed with the other at the end,
 * so that every bit of the text reaches every bit of the number. The same on every machine. Not for secrets:
 * texts that collide can be made.
 */
export function hash53(text: string): number {
  let low = 0xdeadbeef;
  let high = 0x41c6ce57;
  for (let index = 0; index < text.length; index++) {
    const unit = text.charCodeAt(index);
    low = Math.imul(low ^ unit, 0x9e3779b1);
    high = Math.imul(high ^ unit, 0x5f356495);
  }
  low = mix(low) ^ mix(high ^ 0x2545f491);
  high = mix(high) ^ mix(low ^ 0x27d4eb2f);
  return (high & 0x1f_ffff) * 0x1_0000_0000 + (low >>> 0);
}

/** The end of MurmurHash3: a change of one bit changes each other bit with probability 1/2. */
function mix(value: number): number {
  let mixed = value;
  mixed = Math.imul(mixed ^ (mixed >>> 16), 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  return mixed ^ (mixed >>> 16);
}
