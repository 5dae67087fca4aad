import type { SnapshotInfo } from '../../wire/catalog-api.ts';

/**
 * Names of a mirror's snapshots. `mirror-NAME-7` at both ends: a complete copy. `mirror-NAME-target` at one end: the
 * volume is the copy, and nothing else may write it; the mirror removes what others wrote. `mirror-NAME-by-SESSION` at
 * the target: a process writes to it in this session of commands, or has died meanwhile.
 */
export class MirrorNames {
  readonly name: string;
  readonly target: string;
  readonly check: string;

  constructor(name: string) {
    this.name = name;
    this.target = `mirror-${name}-target`;
    this.check = `mirror-${name}-check`;
  }

  copy(number: number): string {
    return `mirror-${this.name}-${number}`;
  }

  /** Keeps what was in a volume before it became the copy. */
  replaced(number: number): string {
    return `replaced-${this.name}-${number}`;
  }

  /** The mark of a session of commands. */
  writer(session: number): string {
    return `mirror-${this.name}-by-${session.toString(16)}`;
  }

  /** Complete copies by their numbers. */
  copies(snapshots: readonly SnapshotInfo[]): Map<number, SnapshotInfo> {
    const prefix = `mirror-${this.name}-`;
    const copies = new Map<number, SnapshotInfo>();
    for (const one of snapshots) {
      const digits = one.name.startsWith(prefix) ? one.name.slice(prefix.length) : '';
      if (/^[1-9][0-9]*$/.test(digits)) copies.set(Number(digits), one);
    }
    return copies;
  }
}

/** @returns the session of commands that the name of a snapshot marks, of a mirror of any name; null: of none */
export function sessionOfWriter(snapshot: string): number | null {
  const [, digits] = /^mirror-[a-z0-9]{1,20}-by-([0-9a-f]{1,14})$/.exec(snapshot) ?? [];
  return digits === undefined ? null : Number.parseInt(digits, 16);
}

/** @returns whether a backup or a mirror needs the snapshot: as the base of the next difference, or while it runs */
export function isNeededSnapshot(name: string): boolean {
  return /^(?:mirror-.|chain-.|backup[.-][0-9a-f]{12}$)/.test(name);
}

/** The lease of the process that writes to a volume as a mirror, in the volume's cluster. */
export function targetLease(volume: string): string {
  return `mirror-target/${volume}`;
}

/** The lease of the process that reads a volume as this mirror, in the volume's cluster. */
export function sourceLease(volume: string, name: string): string {
  return `mirror-source/${volume}/${name}`;
}
