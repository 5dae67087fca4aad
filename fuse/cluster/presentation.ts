import type { Attributes } from '../backend.ts';

/** What is shown instead of what is stored; null for what is stored. */
export interface Presentation {
  readonly uid: number | null;
  readonly gid: number | null;
  /** Permissions that files and the like are shown without, out of 777. */
  readonly fileMask: number | null;
  /** The same for directories. */
  readonly directoryMask: number | null;
}

/** Whether everything is shown as it is stored. */
export function isAsStored({ uid, gid, fileMask, directoryMask }: Presentation): boolean {
  return uid === null && gid === null && fileMask === null && directoryMask === null;
}

/**
 * For cluster volumes used by machines with other users than those that wrote. The kernel checks permissions by what
 * it is shown; what is stored does not change.
 */
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
