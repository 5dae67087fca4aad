import type { Attributes } from '../backend.ts';

export interface Presentation {
  readonly uid: number | null;
  readonly gid: number | null;
  readonly fileMask: number | null;
  readonly directoryMask: number | null;
}

export function isAsStored({ uid, gid, fileMask, directoryMask }: Presentation): boolean {
  return uid === null && gid === null && fileMask === null && directoryMask === null;
}

/** Replaces owners and modes, for a machine with other users. The kernel checks permissions by the result. */
export function presenter(as: Presentation): (attributes: Attributes) => Attributes {
  const { uid, gid, fileMask, directoryMask } = as;
  if (isAsStored(as)) return (stored) => stored;
  return (stored) => {
    const mask = stored.kind === 'directory' ? directoryMask : stored.kind === 'symlink' ? null : fileMask;
    return {
      ...stored,
      uid: uid ?? stored.uid,
      gid: gid ?? stored.gid,
      mode: mask === null ? stored.mode : 0o777 & ~mask,
    };
  };
}
