/**
 * The CRC of two texts, one after the other, from the CRC of each and the length of the second. CRCs are polynomials
 * over GF(2): appending n bytes multiplies by x^(8n) modulo the CRC's polynomial, which repeated squaring computes (as
 * in zlib's `crc32_combine`). All CRCs here are reflected, with both ends inverted, so the inversions cancel out.
 */
interface CrcShape {
  readonly bits: number;
  /** Reflected: the most significant bit is the coefficient of x^0. */
  readonly polynomial: bigint;
}

const SHAPES = {
  CRC32: { bits: 32, polynomial: 0xedb8_8320n },
  CRC32C: { bits: 32, polynomial: 0x82f6_3b78n },
  CRC64NVME: { bits: 64, polynomial: 0x9a6c_9329_ac4b_c9b5n },
} as const satisfies Record<string, CrcShape>;

export type CombinableCrc = keyof typeof SHAPES;

export function isCombinable(algorithm: string): algorithm is CombinableCrc {
  return Object.hasOwn(SHAPES, algorithm);
}

export interface CrcOfPart {
  /** Most significant byte first. */
  readonly crc: Buffer;
  readonly sizeBytes: number;
}

/** @returns the CRC of all parts, one after the other, most significant byte first */
export function combinedCrc(algorithm: CombinableCrc, parts: readonly CrcOfPart[]): Buffer {
  const shape = SHAPES[algorithm];
  // Parts of an upload have few sizes.
  const shifts = new Map<number, bigint>();
  let combined = 0n;
  for (const { crc, sizeBytes } of parts) {
    let shift = shifts.get(sizeBytes);
    if (shift === undefined) {
      shift = shiftOf(sizeBytes, shape);
      shifts.set(sizeBytes, shift);
    }
    combined = product(shift, combined, shape) ^ BigInt(`0x${crc.toString('hex')}`);
  }
  return Buffer.from(combined.toString(16).padStart(shape.bits / 4, '0'), 'hex');
}

/** x^(8 · bytes) modulo the polynomial. */
function shiftOf(bytes: number, shape: CrcShape): bigint {
  const one = 1n << BigInt(shape.bits - 1);
  let power = one >> 8n;
  let shift = one;
  for (let rest = bytes; rest > 0; rest = Math.floor(rest / 2)) {
    if (rest % 2 === 1) shift = product(power, shift, shape);
    power = product(power, power, shape);
  }
  return shift;
}

/** a · b modulo the polynomial, all reflected. */
function product(a: bigint, b: bigint, { bits, polynomial }: CrcShape): bigint {
  let sum = 0n;
  let shifted = b;
  for (let bit = 1n << BigInt(bits - 1); bit > 0n; bit >>= 1n) {
    if ((a & bit) !== 0n) sum ^= shifted;
    shifted = (shifted & 1n) === 1n ? (shifted >> 1n) ^ polynomial : shifted >> 1n;
  }
  return sum;
}
