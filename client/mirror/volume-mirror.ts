/**
 * Copies a volume to another cluster, one snapshot after the other. The target's snapshot of a number is created when
 * all of the source's snapshot of that number is there, so each is a complete copy, and readers use the latest. The
 * only state are the snapshots at both ends: whatever has ended before its time, the target is first made as it was at
 * its latest complete copy, and then gets the differences since.
 */
import { type ErrorCode, ServiceError } from '../../base/errors.ts';
import type { SnapshotInfo } from '../../wire/catalog-api.ts';
import { isSame } from '../difference/change-pages.ts';
import { DifferenceApplier } from '../difference/difference-applier.ts';
import { fileContents } from '../difference/file-contents.ts';
import { assertUnprotected } from '../difference/protected-files.ts';
import { differenceBytes, snapshotDifference } from '../difference/snapshot-difference.ts';
import { OwnCopies, undoDifference } from '../difference/undo-difference.ts';
import { preconditionFailure } from '../terminal/failure.ts';
import type { CallOptions } from '../transport/exchange.ts';
import { matchInodes } from './matching-inodes.ts';
import type { MirrorEnd } from './mirror-end.ts';

/** Complete copies that the target keeps: readers of the one before the latest can go on. */
const COPIES_KEPT = 2;

export interface MirrorState {
  /** The latest complete copy; null before the first. */
  copied: { readonly number: number; readonly madeNs: string } | null;
  /** Contents of the present cycle that are still to be written. */
  pendingBytes: number;
  copiedBytes: number;
  cycles: number;
  failures: number;
  /** Cycles before which others had written to the target. */
  foreignChanges: number;
}

export function emptyState(): MirrorState {
  return { copied: null, pendingBytes: 0, copiedBytes: 0, cycles: 0, failures: 0, foreignChanges: 0 };
}

export interface MirrorParts {
  readonly source: MirrorEnd;
  readonly target: MirrorEnd;
  /** Replace what is in a target that is not this mirror's copy. */
  readonly replace: boolean;
  readonly state: MirrorState;
  readonly report: (text: string) => void;
  readonly changed: () => Promise<void>;
}

interface Base {
  readonly number: number;
  readonly source: SnapshotInfo;
  readonly target: SnapshotInfo;
}

export class Mirror {
  readonly #parts: MirrorParts;
  readonly #source: MirrorEnd;
  readonly #target: MirrorEnd;
  /** The copies of the source's inodes as of the latest complete copy; null: not known. */
  #copies: Map<number, number> | null = null;
  /** Whether this process has seen the target in the state of its latest copy. */
  #hasStarted = false;

  constructor(parts: MirrorParts) {
    this.#parts = parts;
    this.#source = parts.source;
    this.#target = parts.target;
  }

  /**
   * Copies the present state of the source. After a failure, the next cycle starts over from the latest copy.
   * @param assertHeld throws if another process may be the mirror by now: a stopped one learns it late
   */
  async cycle(call: CallOptions, assertHeld: () => void): Promise<void> {
    try {
      await this.#target.alone(assertHeld, call, () => this.#cycle(call, assertHeld));
      this.#parts.state.cycles += 1;
    } catch (error) {
      this.#copies = null;
      this.#hasStarted = false;
      throw explained(
        error,
        'wait for the date, or clear the flag; or mirror to an empty volume with --to URL,URL/VOLUME',
      );
    } finally {
      await this.#parts.changed();
    }
  }

  async #cycle(call: CallOptions, assertHeld: () => void): Promise<void> {
    const { state, changed } = this.#parts;
    const base = await this.#begin(call);
    const copies = await this.#restoreBase(base, call);
    state.copied = base === null ? null : { number: base.number, madeNs: base.source.madeNs };
    const next = await this.#nextSnapshot(base, call);
    const { volume, client } = this.#source;
    const range = { volume, from: base?.source.serial ?? null, to: next.snapshot.serial };
    const totalBytes = await differenceBytes(client, range, call);
    state.pendingBytes = totalBytes;
    await changed();
    const root = await this.#target.root(call);
    copies.set(await this.#source.root(call), root);
    const applier = new DifferenceApplier(
      this.#target.client,
      { volume: this.#target.volume, root },
      copies,
      call,
    );
    await applier.run(
      snapshotDifference(client, range, call),
      (file) => fileContents(client, file, call),
      () => {
        state.pendingBytes = Math.max(0, totalBytes - applier.bytes);
      },
    );
    // A loss of power may have undone changes: then the flush fails, and no snapshot shows them as a copy.
    await this.#target.client.flushCatalog(call);
    assertHeld();
    await this.#target.create(this.#target.names.copy(next.number), call);
    this.#copies = copies;
    this.#hasStarted = true;
    state.pendingBytes = 0;
    state.copiedBytes += applier.bytes;
    state.copied = { number: next.number, madeNs: next.snapshot.madeNs };
    await this.#removeOld(next.number, call);
  }

  /** Makes sure that the target is this mirror's. @returns the latest copy; null if there is none */
  async #begin(call: CallOptions): Promise<Base | null> {
    const [sources, targets] = [await this.#source.snapshots(call), await this.#target.snapshots(call)];
    const { names } = this.#target;
    if (sources.some(({ name }) => name === names.target))
      throw preconditionFailure(
        `Cannot mirror volume "${this.#source.volume}": it is the copy of a mirror of this name itself`,
        `promote it first with "leasehold mirror promote ${this.#source.volume}"`,
      );
    const base = latestCommon(names.copies(sources), names.copies(targets));
    const marker = targets.find(({ name }) => name === names.target);
    // Copies of which the source has no snapshot are another mirror's, or of a source that was lost.
    const areOlder = (serial: number): boolean =>
      [...names.copies(targets).values()].every((copy) => copy.serial < serial);
    const isOwn = marker !== undefined && (base !== null || areOlder(marker.serial));
    if (!isOwn) await this.#takeOver(base, marker !== undefined, call);
    return base;
  }

  /** The target is not this mirror's copy: it is new, or was promoted, or has nothing to do with the mirror. */
  async #takeOver(base: Base | null, isMarked: boolean, call: CallOptions): Promise<void> {
    const { volume, names } = this.#target;
    const { replace, report } = this.#parts;
    const isUsed = base !== null || isMarked || !(await this.#target.isEmpty(call));
    if (isUsed && !replace)
      throw preconditionFailure(
        `Cannot mirror to volume "${volume}": it has contents of its own, or was promoted`,
        'choose an empty volume; or replace what is in it with --replace, which keeps a snapshot of that',
      );
    if (base === null && isUsed) await this.#assertClearable(call);
    if (isUsed) {
      const kept = names.replaced(this.#target.client.world.wallMs());
      await this.#target.create(kept, call);
      report(`what was in ${volume} is kept as ${volume}@${kept}`);
    }
    if (base === null && isUsed) await this.#clear(call);
    if (isMarked) await this.#target.remove(names.target, call);
    await this.#target.create(names.target, call);
  }

  /** @throws ServiceError `protected`, before anything is removed, if something cannot be removed */
  async #assertClearable(call: CallOptions): Promise<void> {
    const { client } = this.#target;
    const check = async (inode: number): Promise<void> => {
      for await (const { attributes } of client.list({ inode }, call)) {
        await assertUnprotected(client, attributes, call);
        if (attributes.kind === 'directory') await check(attributes.inode);
      }
    };
    await check(await this.#target.root(call));
  }

  async #clear(call: CallOptions): Promise<void> {
    const { client } = this.#target;
    const clear = async (inode: number): Promise<void> => {
      for await (const { name, attributes } of client.list({ inode }, call)) {
        const place = { parent: inode, name };
        if (attributes.kind !== 'directory')
          await client.command({ kind: 'unlink', place, trash: false }, call);
        else {
          await clear(attributes.inode);
          await client.command({ kind: 'remove-directory', place }, call);
        }
      }
    };
    await clear(await this.#target.root(call));
  }

  /** Makes the target as it was at the latest copy. @returns the copies of the source's inodes */
  async #restoreBase(base: Base | null, call: CallOptions): Promise<Map<number, number>> {
    const { volume, client } = this.#target;
    const known = this.#copies;
    if (base === null) {
      // Of a first copy that was interrupted.
      await this.#clear(call);
      return new Map();
    }
    const to = base.target;
    const own = new OwnCopies();
    const isClean = await this.#target.withPresent(call, async ({ serial: now }) => {
      if (await isSame(client, { volume, from: to.serial, to: now }, call)) return true;
      const steps = await undoDifference(client, { volume, to: to.serial, now }, own, call);
      this.#reportUndone(steps);
      return false;
    });
    if (isClean && known !== null) return known;
    const copies = new Map<number, number>();
    await matchInodes(
      { client: this.#source.client, inode: await this.#source.root(call), snapshot: base.source.serial },
      { client, inode: await this.#target.root(call), snapshot: base.target.serial },
      copies,
      call,
    );
    for (const [inode, copy] of copies) copies.set(inode, own.get(copy));
    return copies;
  }

  #reportUndone(steps: number): void {
    const { state, report } = this.#parts;
    if (!this.#hasStarted) {
      report(`removed ${steps} changes from the target that were not part of its latest complete copy`);
      return;
    }
    state.foreignChanges += 1;
    report(`removed ${steps} changes that others made in the target: only the mirror may write to it`);
  }

  /** Not that of an interrupted cycle, of which nothing is left: the present state is as good a one. */
  async #nextSnapshot(
    base: Base | null,
    call: CallOptions,
  ): Promise<{ readonly number: number; readonly snapshot: SnapshotInfo }> {
    const { names } = this.#source;
    const sources = names.copies(await this.#source.snapshots(call));
    const targets = names.copies(await this.#target.snapshots(call));
    const number = Math.max(0, ...sources.keys(), ...targets.keys()) + 1;
    // Cycles that failed leave theirs, and a volume has a bounded number.
    for (const old of sources.keys())
      if (old !== base?.number) await this.#source.removeOld(names.copy(old), call);
    return { number, snapshot: await this.#source.create(names.copy(number), call) };
  }

  async #removeOld(latest: number, call: CallOptions): Promise<void> {
    const { names } = this.#source;
    const sources = names.copies(await this.#source.snapshots(call));
    for (const number of sources.keys())
      if (number !== latest) await this.#source.removeOld(names.copy(number), call);
    const targets = [...names.copies(await this.#target.snapshots(call)).keys()].sort((a, b) => b - a);
    for (const number of targets.slice(COPIES_KEPT)) await this.#target.removeOld(names.copy(number), call);
  }
}

function latestCommon(
  sources: ReadonlyMap<number, SnapshotInfo>,
  targets: ReadonlyMap<number, SnapshotInfo>,
): Base | null {
  const number = Math.max(0, ...[...sources.keys()].filter((one) => targets.has(one)));
  const [source, target] = [sources.get(number), targets.get(number)];
  return source === undefined || target === undefined ? null : { number, source, target };
}

/** @returns the failure with what to do next if a file of the target is retained, or protected by a flag */
function explained(error: unknown, hint: string): unknown {
  const isProtected = error instanceof ServiceError && error.code === 'protected';
  return isProtected ? preconditionFailure(error.message, hint, { cause: error }) : error;
}

/** Makes a copy writable for others: as it was at its latest complete copy. @returns the copy */
export function promote(end: MirrorEnd, call: CallOptions, assertHeld: () => void): Promise<SnapshotInfo> {
  return end.alone(assertHeld, call, () => promoteAlone(end, call));
}

async function promoteAlone(end: MirrorEnd, call: CallOptions): Promise<SnapshotInfo> {
  const { client, names, volume } = end;
  const snapshots = await end.snapshots(call);
  const copies = names.copies(snapshots);
  const latest = copies.get(Math.max(0, ...copies.keys()));
  if (!snapshots.some(({ name }) => name === names.target))
    throw preconditionFailure(
      `Cannot promote volume "${volume}": it is not the copy of a mirror "${names.name}"`,
      latest === undefined
        ? 'connect to the cluster of the copy, and name its volume'
        : 'it may have been promoted before',
    );
  if (latest === undefined)
    throw preconditionFailure(`Cannot promote volume "${volume}": its first copy is not complete`);
  try {
    await end.withPresent(call, ({ serial: now }) =>
      undoDifference(client, { volume, to: latest.serial, now }, new OwnCopies(), call),
    );
  } catch (error) {
    throw explained(
      error,
      `clear the flag; or use a copy of the snapshot: leasehold cp -r ${volume}@${latest.name}:/ OTHER:/NEW`,
    );
  }
  await client.flushCatalog(call);
  await end.remove(names.target, call);
  return latest;
}

export interface MirrorStatus {
  readonly copied: number | null;
  readonly madeNs: string | null;
  readonly behindMs: number | null;
  /** Contents that the copy lacks of the source's snapshot that is being copied. */
  readonly pendingBytes: number;
  readonly isTarget: boolean;
}

/** What the snapshots at both ends tell. */
export async function mirrorStatus(
  source: MirrorEnd,
  target: MirrorEnd,
  call: CallOptions,
): Promise<MirrorStatus> {
  const { names } = source;
  const [sources, snapshots] = [names.copies(await source.snapshots(call)), await target.snapshots(call)];
  const base = latestCommon(sources, names.copies(snapshots));
  const latest = Math.max(0, ...sources.keys());
  const next = latest > (base?.number ?? 0) ? sources.get(latest) : undefined;
  const from = base?.source.serial ?? null;
  const pendingBytes =
    next === undefined
      ? 0
      : await differenceBytes(source.client, { volume: source.volume, from, to: next.serial }, call);
  return {
    copied: base?.number ?? null,
    madeNs: base?.source.madeNs ?? null,
    behindMs: base === null ? null : behindMs(source.client.world.wallMs(), base.source.madeNs),
    pendingBytes,
    isTarget: snapshots.some(({ name }) => name === names.target),
  };
}

export function behindMs(nowMs: number, madeNs: string): number {
  return Math.max(0, Math.round(nowMs - Number(BigInt(madeNs) / 1_000_000n)));
}

/** Later cycles fail alike: `protected` is a file of the target that is retained or immutable. */
const LASTING: ReadonlySet<ErrorCode> = new Set(['unauthorized', 'forbidden', 'protected']);

/** @returns whether a later cycle may succeed; also after changes that others made in the target meanwhile */
export function isPassing(error: unknown): error is ServiceError {
  return error instanceof ServiceError && !LASTING.has(error.code);
}
