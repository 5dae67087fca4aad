/**
 * A server's disk as far as one subject is concerned. What is applied survives the death of the process; a loss of
 * power takes whatever was not synced, back to some moment since the last sync. Promises, installations and changes
 * of members are synced, as the order to a driver says, and so is what was flushed.
 */
import { assert } from '../../base/assert.ts';
import type { FileId } from '../../base/ids.ts';
import type { Prng } from '../../base/prng.ts';
import type { Epoch, Position } from '../../replica/epoch.ts';
import { EPOCH_ZERO, epochEqual } from '../../replica/epoch.ts';
import type { Operation } from '../../replica/operation.ts';
import type { ReplicaRecord, Trust } from '../../replica/record.ts';
import { SessionTable } from '../../replica/sessions.ts';
import type { View } from '../../replica/view.ts';
import type { Contents } from './system-contents.ts';
import { FileContents, type Preserved } from './system-file.ts';

/** Servers store nothing at all for it, which is decoded as the same; here states that are equal are compared as they lie. */
const NO_SESSIONS = SessionTable.EMPTY.encode();

/** An operation that was applied since the last installation. */
interface Applied {
  readonly epoch: Epoch;
  readonly seq: number;
  readonly operation: Operation;
  readonly sessions: Uint8Array;
}

export class SimulatedDisk {
  /** As any process sees it. */
  record: ReplicaRecord;
  contents: Contents;
  /** Contents of the file as other files have them for ever. */
  preserved: Map<FileId, Preserved>;
  /** By which operations they came to be. */
  readonly #preservedSeqs = new Map<FileId, number>();
  #trust: Trust;
  /** As of the last installation, which was synced. */
  #base: {
    readonly record: ReplicaRecord;
    readonly contents: Contents;
    readonly preserved: ReadonlyMap<FileId, Preserved>;
  };
  #applied: Applied[] = [];
  #syncedSeq: number;
  /** Borne, and not synced since: all of it may go. */
  #isUnsynced = false;

  /** @param trust `lost` where this may be the place of an earlier disk, `suspect` where what was here is gone with the power */
  constructor(
    view: View,
    contents: Contents,
    trust: Exclude<Trust, 'damaged'>,
    preserved: ReadonlyMap<FileId, Preserved> = new Map(),
  ) {
    const record = {
      view,
      promised: EPOCH_ZERO,
      installed: EPOCH_ZERO,
      seq: 0,
      sessions: new Uint8Array(),
    };
    this.record = record;
    this.contents = contents;
    this.#trust = trust;
    this.preserved = new Map(preserved);
    this.#base = { record, contents: contents.copy(), preserved };
    this.#syncedSeq = 0;
  }

  get trust(): Trust {
    return this.#trust;
  }

  /** Whether no loss of power takes back what is preserved as that file. */
  preservesForGood(as: FileId): boolean {
    return this.#base.preserved.has(as) || (this.#preservedSeqs.get(as) ?? Infinity) <= this.#syncedSeq;
  }

  get position(): Position {
    return { epoch: this.record.installed, seq: this.record.seq };
  }

  /** Synced. */
  promise(promised: Epoch): void {
    this.#isUnsynced = false;
    this.record = { ...this.record, promised };
  }

  /** Synced. */
  begin(epoch: Epoch): void {
    assert(this.record.promised.counter === 0, 'Only what is new begins');
    this.promise(epoch);
    const { seq, view, sessions } = this.record;
    this.install({ installed: epoch, seq, view, sessions }, null);
  }

  /** A beginning and the first operations; nothing of it is synced. */
  bear(epoch: Epoch, operations: readonly Operation[]): void {
    this.begin(epoch);
    for (const [place, operation] of operations.entries())
      this.apply(epoch, place + 1, operation, NO_SESSIONS);
    this.#isUnsynced = true;
  }

  apply(epoch: Epoch, seq: number, operation: Operation, sessions: Uint8Array): void {
    assert(seq === this.record.seq + 1, 'Operations are applied in order');
    this.#applied.push({ epoch, seq, operation, sessions });
    const before = this.preserved.size;
    this.#redo({ epoch, seq, operation, sessions });
    // A majority that came to go by an older view would not be one; nor one that is said to have what is preserved.
    if (operation.view !== undefined || this.preserved.size > before) this.#syncedSeq = seq;
  }

  #redo({ epoch, seq, operation, sessions }: Applied): void {
    const made =
      this.contents instanceof FileContents ? this.contents.preservedBy(operation, this.record.view) : null;
    if (made !== null && !this.preserved.has(made.as)) {
      this.preserved.set(made.as, made);
      this.#preservedSeqs.set(made.as, seq);
    }
    this.contents.apply(operation, epoch, seq);
    const view = operation.view ?? this.record.view;
    this.record = { ...this.record, seq, sessions, view };
  }

  /** Synced. `contents` are another replica's, or null to keep the own. */
  install(change: Omit<ReplicaRecord, 'promised'>, contents: Contents | null): void {
    this.#isUnsynced = false;
    if (contents !== null) this.contents = contents;
    this.record = { ...this.record, ...change };
    assert(this.contents.log.length === this.record.seq, 'What is installed is all there');
    this.#trust = 'intact';
    this.#base = {
      record: this.record,
      contents: asWritten(this.contents),
      preserved: new Map(this.preserved),
    };
    this.#applied = [];
    this.#syncedSeq = this.record.seq;
  }

  /** What was applied up to `seq` survives from now on. */
  synced(epoch: Epoch, seq: number): void {
    // A flush that was ordered before another state was installed says nothing about that.
    if (!epochEqual(epoch, this.record.installed)) return;
    this.#isUnsynced = false;
    this.#syncedSeq = Math.max(this.#syncedSeq, seq);
  }

  /** @param dice null where all that was not synced goes. @returns how many operations are gone; `all` where the replica itself is */
  losePower(dice: Prng | null): number | 'all' {
    const { seq, promised } = this.record;
    if (this.#isUnsynced && (dice === null || dice.chance(0.5))) return 'all';
    this.#isUnsynced = false;
    const keptSeq = dice === null || dice.chance(0.3) ? this.#syncedSeq : dice.integer(this.#syncedSeq, seq);
    if (this.#trust === 'intact') this.#trust = 'suspect';
    if (keptSeq === seq) return 0;
    const before = this.contents;
    this.record = { ...this.#base.record, promised };
    this.contents = this.#base.contents.copy();
    this.preserved = new Map(this.#base.preserved);
    this.#applied = this.#applied.filter((applied) => applied.seq <= keptSeq);
    for (const applied of this.#applied) this.#redo(applied);
    if (this.contents instanceof FileContents && before instanceof FileContents) {
      this.contents.keepBytesOf(before);
    }
    assert(this.record.seq === keptSeq, 'What was synced is still there');
    return seq - keptSeq;
  }
}

/** What rots, rots where it lies: a loss of power brings back what was written. */
function asWritten(contents: Contents): Contents {
  return contents instanceof FileContents ? contents.asWritten() : contents.copy();
}
