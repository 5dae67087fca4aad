/** CRC-64/NVME (NVM Express NVM Command Set Specification 1.0, 5.2.1.3.4): reflected, both ends inverted. */
const POLYNOMIAL = 0x9a6c_9329_ac4b_c9b5n;
const SLICES = 8;

/** For each of eight bytes and each value: the high and the low half of its share, reflected. */
const [HIGH, LOW] = tables();

function tables(): readonly [Uint32Array, Uint32Array] {
  const all = new BigUint64Array(256 * SLICES);
  for (let byte = 0; byte < 256; byte++) {
    let crc = BigInt(byte);
    for (let bit = 0; bit < 8; bit++) crc = (crc & 1n) === 1n ? (crc >> 1n) ^ POLYNOMIAL : crc >> 1n;
    all[byte] = crc;
  }
  for (let index = 256; index < all.length; index++) {
    const before = all[index - 256] as bigint;
    all[index] = (before >> 8n) ^ (all[Number(before & 0xffn)] as bigint);
  }
  return [
    Uint32Array.from(all, (crc) => Number(crc >> 32n)),
    Uint32Array.from(all, (crc) => Number(crc & 0xffff_ffffn)),
  ];
}

export class Crc64Nvme {
  #high = 0xffff_ffff;
  #low = 0xffff_ffff;

  update(bytes: Uint8Array): void {
    let high = this.#high;
    let low = this.#low;
    let offset = 0;
    const value = (index: number): number => bytes[index] as number;
    // Eight bytes a step (Kounavis and Berry, "Novel table lookup-based algorithms for high-performance CRC").
    for (const end = bytes.length - SLICES; offset <= end; offset += SLICES) {
      const a =
        low ^
        (value(offset) | (value(offset + 1) << 8) | (value(offset + 2) << 16) | (value(offset + 3) << 24));
      const b =
        high ^
        (value(offset + 4) |
          (value(offset + 5) << 8) |
          (value(offset + 6) << 16) |
          (value(offset + 7) << 24));
      const places = [
        ...[1792 + (a & 255), 1536 + ((a >>> 8) & 255), 1280 + ((a >>> 16) & 255), 1024 + (a >>> 24)],
        ...[768 + (b & 255), 512 + ((b >>> 8) & 255), 256 + ((b >>> 16) & 255), b >>> 24],
      ];
      high = 0;
      low = 0;
      for (const place of places) {
        high ^= HIGH[place] as number;
        low ^= LOW[place] as number;
      }
    }
    for (; offset < bytes.length; offset++) {
      const place = (low ^ value(offset)) & 255;
      low = ((low >>> 8) | (high << 24)) ^ (LOW[place] as number);
      high = (high >>> 8) ^ (HIGH[place] as number);
    }
    this.#high = high;
    this.#low = low;
  }

  /** @returns the eight bytes, most significant first */
  digest(): Buffer {
    const bytes = Buffer.alloc(8);
    bytes.writeUInt32BE(~this.#high >>> 0, 0);
    bytes.writeUInt32BE(~this.#low >>> 0, 4);
    return bytes;
  }
}
