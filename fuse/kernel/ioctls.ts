import { INODE_FLAGS, type InodeFlag } from '../../wire/inode-flags.ts';
import { ErrnoError } from '../errno.ts';

/** Commands for flags of inodes (`lsattr`, `chattr`): numbers of <linux/fs.h>. */

export const IOCTL = {
  getFlags: 0x80086601,
  setFlags: 0x40086602,
  getXflags: 0x801c581f,
  setXflags: 0x401c5820,
} as const;

interface FlagsForm {
  readonly sets: boolean;
  readonly sizeBytes: number;
  readonly bits: Readonly<Record<InodeFlag, number>>;
}

const WORD = { sizeBytes: 4, bits: { immutable: 0x10, 'append-only': 0x20 } } as const;
const STRUCT = { sizeBytes: 28, bits: { immutable: 0x8, 'append-only': 0x10 } } as const;
/** Fields of the struct that must be zero: preferred sizes and the project. The count of extents is ignored. */
const UNKEPT_AT = [4, 12, 16] as const;

export function flagsFormOf(command: number): FlagsForm | undefined {
  switch (command) {
    case IOCTL.getFlags:
      return { sets: false, ...WORD };
    case IOCTL.setFlags:
      return { sets: true, ...WORD };
    case IOCTL.getXflags:
      return { sets: false, ...STRUCT };
    case IOCTL.setXflags:
      return { sets: true, ...STRUCT };
    default:
      return undefined;
  }
}

/** @throws ErrnoError `EOPNOTSUPP` for unsupported flags, `EINVAL` */
export function decodeFlags({ bits, sizeBytes }: FlagsForm, bytes: Buffer): readonly InodeFlag[] {
  if (bytes.length < sizeBytes) throw new ErrnoError('EINVAL', 'The flags are truncated');
  const word = bytes.readUInt32LE(0);
  const unkept = sizeBytes === STRUCT.sizeBytes ? UNKEPT_AT.map((at) => bytes.readUInt32LE(at)) : [];
  if ((word & ~(bits.immutable | bits['append-only'])) !== 0 || unkept.some((value) => value !== 0))
    throw new ErrnoError('EOPNOTSUPP', `Flags 0x${word.toString(16)} are not kept`);
  return INODE_FLAGS.filter((flag) => (word & bits[flag]) !== 0);
}

export function encodeFlags({ bits, sizeBytes }: FlagsForm, flags: readonly InodeFlag[]): Buffer {
  const bytes = Buffer.alloc(sizeBytes);
  bytes.writeUInt32LE(
    flags.reduce((word, flag) => word | bits[flag], 0),
    0,
  );
  return bytes;
}
