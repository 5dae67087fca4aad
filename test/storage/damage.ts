import fs from 'node:fs';

/** Flips one bit of a file, as a bad disk does. */
export function flipByte(path: string, position: number): void {
  const fd = fs.openSync(path, 'r+');
  try {
    const byte = Buffer.alloc(1);
    fs.readSync(fd, byte, 0, 1, position);
    byte[0] = (byte[0] as number) ^ 0x10;
    fs.writeSync(fd, byte, 0, 1, position);
  } finally {
    fs.closeSync(fd);
  }
}
