/**
 * What is known about all servers of a system simulation at once, and what has to hold of it: one operation per
 * position, what was acknowledged stays, replicas that stand at the same position hold the same, and whoever may
 * answer reads has everything that is committed.
 */
import { crc32 } from 'node:zlib';
import type { ServerId } from '../../base/ids.ts';
import type { Epoch } from '../../replica/epoch.ts';
import { epochEqual, epochFormat } from '../../replica/epoch.ts';
import type { View } from '../../replica/view.ts';
import { viewIsAt } from '../../replica/view.ts';
import type { Seal } from '../../wire/file-operation.ts';
import type { SimulatedDisk } from './disk-simulated.ts';
import {
  type Contents,
  type HistoryEntry,
  type Logged,
  type Subject,
  sealOf,
  type Wish,
} from './system-contents.ts';
import type { ReaderRole } from './system-messages.ts';
import { Violation } from './violation.ts';

/** What happened until everything that was not synced was lost, or the run was over. */
interface Segment {
  readonly baseSeq: number;
  readonly entries: HistoryEntry[];
  /** The committed operations at its end. */
  sequence: readonly Logged[];
}

/** A change without an answer so far. */
interface Open {
  readonly wish: Wish;
  readonly callMs: number;
  readonly segment: number;
}

/** How often something happened that a run is for. */
export interface ObserverCounts {
  epochs: number;
  acknowledged: number;
  /** Of these, holes; and reads after the first of them that showed bytes which nobody had written, or no longer. */
  punches: number;
  holeReads: number;
  reads: number;
  /** Reads that a backup answered, those soon after a commit, and those that had to wait for one. */
  localReads: number;
  localReadsSoon: number;
  localReadsDirty: number;
  flushes: number;
  declaredFailed: number;
  viewChanges: number;
  /** The change was ended by another primary than the one that began it. */
  viewChangesInherited: number;
  /** Operations that were acknowledged, not flushed, and gone after a majority lost power. */
  vanished: number;
  /** A new epoch began with what a change of members or a loss of power had left. */
  segments: number;
  /** Files that were sealed, finally, and by another primary than the one that had sealed it first. */
  seals: number;
  finals: number;
  finalsInherited: number;
}

/** Reads so soon after a commit are where a backup could show what is over, in milliseconds. */
const SOON_MS = 10;

export class Observers {
  readonly counts: ObserverCounts = {
    epochs: 0,
    acknowledged: 0,
    punches: 0,
    holeReads: 0,
    reads: 0,
    localReads: 0,
    localReadsSoon: 0,
    localReadsDirty: 0,
    flushes: 0,
    declaredFailed: 0,
    viewChanges: 0,
    viewChangesInherited: 0,
    vanished: 0,
    segments: 0,
    seals: 0,
    finals: 0,
    finalsInherited: 0,
  };
  /** Votes are counted by this view, as far as anything committed says. */
  view: View;
  /** Told of each change that a client was told to be done: where it stands, when it was called, and in which part of the history. */
  onAcknowledged: ((seq: number, callMs: number, segment: number) => void) | null = null;
  readonly #nowMs: () => number;
  readonly #subject: Subject;
  /** All operations known to be committed, by position. */
  #committed: Logged[] = [];
  /** How far a replica's log was compared with them. */
  readonly #comparedSeq = new WeakMap<Contents, number>();
  readonly #segments: Segment[] = [{ baseSeq: 0, entries: [], sequence: [] }];
  readonly #open = new Map<string, Open>();
  /** Since which part of the history. */
  readonly #failed = new Map<string, number>();
  readonly #digests = new Map<string, number>();
  readonly #epochs = new Set<string>();
  #flushedSeq = 0;
  /** What every replica that has the second seal holds; null while none has. */
  #finalDigest: number | null = null;
  #committedMs = -Infinity;
  /** A majority has lost power: what was not synced may be gone when the next epoch begins. */
  #mayForget = false;

  constructor(subject: Subject, view: View, nowMs: () => number) {
    this.#subject = subject;
    this.#nowMs = nowMs;
    this.view = view;
  }

  /** How many operations are known to be committed. */
  get committedSeq(): number {
    return this.#committed.length;
  }

  /** The operations that are known to be committed, by position. */
  get sequence(): readonly Logged[] {
    return this.#committed;
  }

  /** So many operations were told to survive. */
  get flushedSeq(): number {
    return this.#flushedSeq;
  }

  /** Changes with this: what is answered now belongs to this part of the history. */
  get segment(): number {
    return this.#segments.length - 1;
  }

  // Servers ----------------------------------------------------------------------------------------

  /** A primary says that all operations up to `seq` are committed. */
  committed(server: ServerId, seq: number, contents: Contents): void {
    if (contents.log.length < seq)
      throw new Violation(`${server} commits ${seq} and has ${contents.log.length}`);
    const from = this.#comparedSeq.get(contents) ?? 0;
    for (let index = Math.min(from, this.#committed.length); index < seq; index++) {
      const logged = contents.log[index] as Logged;
      const before = this.#committed[index];
      if (before === undefined) this.#commit(logged);
      else if (!isSame(before, logged)) {
        throw new Violation(`Position ${index + 1} is ${before.request}, and at ${server} ${logged.request}`);
      }
    }
    this.#comparedSeq.set(contents, Math.max(from, seq));
  }

  #commit(logged: Logged): void {
    this.#committed.push(logged);
    this.#committedMs = this.#nowMs();
    const { view } = logged.operation;
    if (view === undefined) {
      this.#noteSeal(logged);
      return;
    }
    const { joint } = this.view;
    this.view = view;
    if (view.joint !== undefined || joint === undefined) return;
    if (!viewIsAt(view, joint)) throw new Violation(`View ${view.number} has not the members it was to have`);
    this.counts.viewChanges++;
    const began = this.#committed.findLast(({ operation }) => operation.view?.number === view.number - 1);
    if (began !== undefined && !epochEqual(began.epoch, logged.epoch)) this.counts.viewChangesInherited++;
  }

  #noteSeal(logged: Logged): void {
    const seal = sealOf(logged);
    if (seal === 'sealed') this.counts.seals++;
    if (seal !== 'final') return;
    this.counts.finals++;
    const first = this.#committed.find((before) => sealOf(before) === 'sealed');
    if (first === undefined) throw new Violation('The second seal stands without the first');
    if (!epochEqual(first.epoch, logged.epoch)) this.counts.finalsInherited++;
  }

  /** How far the committed operations have sealed the file. */
  get seal(): Seal {
    let seal: Seal = 'open';
    for (const logged of this.#committed) {
      const own = sealOf(logged);
      if (own === 'final') return own;
      if (own === 'sealed') seal = own;
    }
    return seal;
  }

  /** A backup was told that all operations up to `seq` are committed. */
  heardCommitted(server: ServerId, seq: number, contents: Contents): void {
    // Who slept while others lost it with their power is told of it still. It is compared once all are what they were.
    if (this.#mayForget) return;
    for (let index = this.#comparedSeq.get(contents) ?? 0; index < seq; index++) {
      const committed = this.#committed[index];
      const logged = contents.log[index];
      if (committed === undefined || logged === undefined || !isSame(committed, logged)) {
        throw new Violation(`${server} takes ${logged?.request} at ${index + 1} for committed`);
      }
    }
    this.#comparedSeq.set(contents, Math.max(this.#comparedSeq.get(contents) ?? 0, seq));
  }

  /** At this very moment the server may answer reads from these contents. */
  mayShow(server: ServerId, contents: Contents): void {
    if (contents.log.length >= this.#committed.length) return;
    throw new Violation(
      `${server} may answer reads with ${contents.log.length} of ${this.#committed.length} operations`,
    );
  }

  /** The server answers a read with something that the operation `seq` made. */
  shows(server: ServerId, seq: number): void {
    if (seq > this.#committed.length) {
      throw new Violation(`${server} shows operation ${seq} of ${this.#committed.length} that are committed`);
    }
  }

  /** A primary begins to serve, with these contents, which a majority has. */
  activated(epoch: Epoch, contents: Contents): void {
    const key = epochFormat(epoch) + epoch.incarnation;
    if (this.#epochs.has(key)) throw new Violation(`Epoch ${epochFormat(epoch)} began twice`);
    this.#epochs.add(key);
    this.counts.epochs++;
    if (contents.log.length >= this.#committed.length) return;
    if (!this.#mayForget) {
      throw new Violation(`${epochFormat(epoch)} begins without ${this.#committed.at(-1)?.request}`);
    }
    this.#forget(contents);
  }

  /** Everything that was ever acknowledged is owed to this moment. */
  get neverForgot(): boolean {
    return !this.#mayForget && this.segment === 0;
  }

  /** What was not flushed may be gone already, or when the next epoch begins. */
  get mayForget(): boolean {
    return this.#mayForget;
  }

  /** A majority of some view loses power at once: no more is owed than what was flushed. */
  majorityLostPower(): void {
    this.#mayForget = true;
  }

  /** All replicas that vote are what they were: from now on everything acknowledged is owed again. */
  recovered(): void {
    this.#mayForget = false;
  }

  #forget(contents: Contents): void {
    const baseSeq = contents.log.length;
    if (baseSeq < this.#flushedSeq)
      throw new Violation(`${this.#flushedSeq} operations were flushed, and ${baseSeq} are left`);
    const last = this.#segments.at(-1) as Segment;
    last.sequence = this.#committed;
    this.counts.vanished += this.#committed.length - baseSeq;
    this.counts.segments++;
    this.#committed = this.#committed.slice(0, baseSeq);
    for (const { operation } of this.#committed) if (operation.view !== undefined) this.view = operation.view;
    this.#segments.push({ baseSeq, entries: [], sequence: [] });
  }

  /** Replicas at the same position hold the same, byte for byte. */
  stored(server: ServerId, { record, contents }: SimulatedDisk): void {
    const { installed, seq, sessions } = record;
    if (contents.log.length !== seq) throw new Violation(`${server} stores ${seq} out of order`);
    const key = `${epochFormat(installed)}.${installed.incarnation}/${seq}`;
    const last = contents.log.at(-1)?.request ?? '';
    const hash = crc32(sessions, crc32(last, contents.digest()));
    const before = this.#digests.get(key);
    if (contents.seal === 'final') this.#noteFinal(server, contents);
    if (before === undefined) this.#digests.set(key, hash);
    else if (before !== hash) throw new Violation(`${server} differs from another replica at ${key}`);
  }

  /**
   * A replica has the second seal: from now on it may answer reads whatever happens to the others, so the first one, and
   * all before it, survive, too.
   */
  #noteFinal(server: ServerId, contents: Contents): void {
    const sealedSeq = 1 + contents.log.findIndex((logged) => sealOf(logged) === 'sealed');
    if (sealedSeq === 0 || sealedSeq > this.#committed.length)
      throw new Violation(`${server} has the second seal, and the first is not committed`);
    this.#flushedSeq = Math.max(this.#flushedSeq, sealedSeq);
    this.showsFinal(server, contents);
  }

  /** The server answers a read by itself, because it has the second seal. */
  showsFinal(server: ServerId, contents: Contents): void {
    this.#finalDigest ??= contents.digest();
    if (this.#finalDigest !== contents.digest())
      throw new Violation(`${server} has other contents than another replica that has the second seal, too`);
    const sealed = this.#committed.findIndex((logged) => sealOf(logged) === 'sealed');
    const lacks = this.#committed
      .slice(0, sealed)
      .some((logged, index) => contents.log[index]?.request !== logged.request);
    if (sealed < 0 || lacks)
      throw new Violation(`${server} shows other contents than those that were sealed`);
  }

  /** A client was told that all operations up to `seq` survive. */
  flushed(seq: number): void {
    this.counts.flushes++;
    this.#flushedSeq = Math.max(this.#flushedSeq, seq);
  }

  // Clients ----------------------------------------------------------------------------------------

  called(request: string, wish: Wish): void {
    this.#open.set(request, { wish, callMs: this.#nowMs(), segment: this.segment });
  }

  /**
   * A change was answered.
   *
   * @param segment as it was when the server answered: on its way the answer is older than what happened since
   */
  answered(request: string, answer: string, seq: number, segment: number): void {
    const open = this.#open.get(request);
    if (open === undefined) return;
    this.#open.delete(request);
    const { wish, callMs } = open;
    this.#record(
      { kind: 'change', request, wish, answer, callMs, returnMs: this.#nowMs(), seq },
      open.segment,
      segment,
    );
    this.counts.acknowledged++;
    this.onAcknowledged?.(seq, callMs, segment);
    if (wish.kind === 'punch') this.counts.punches++;
    const { sequence } = this.#segments[segment] as Segment;
    const stands = segment === this.segment ? this.#committed[seq - 1] : sequence[seq - 1];
    if (stands?.request !== request) {
      throw new Violation(`${request} was acknowledged at ${seq}, where ${stands?.request} stands`);
    }
    const order = segment === this.segment ? this.#committed : sequence;
    if (order.slice(0, seq).some((logged) => sealOf(logged) !== null))
      throw new Violation(`${request} was acknowledged at ${seq}, after the file was sealed`);
  }

  /** A client was told that its change has not happened, and takes that for the last word: it will not happen. */
  refused(request: string): void {
    this.#fail(request, this.#open.get(request)?.segment ?? this.segment);
  }

  /**
   * A client was told that its change is not there, and never will be, whatever came of its attempts so far.
   *
   * @param segment as it was when the server answered: what was done before may have vanished with a loss of power
   */
  refusedForEver(request: string, segment: number): void {
    const open = this.#open.get(request);
    if (open === undefined) return;
    const { wish, callMs } = open;
    const entry = {
      kind: 'change',
      request,
      wish,
      answer: null,
      callMs,
      returnMs: Infinity,
      seq: null,
    } as const;
    for (let before = open.segment; before < segment; before++) this.#segments[before]?.entries.push(entry);
    this.#fail(request, segment);
  }

  #fail(request: string, segment: number): void {
    this.counts.declaredFailed++;
    this.#open.delete(request);
    this.#failed.set(request, segment);
  }

  /** @param by how the answering server came to be allowed to, and whether the read had to wait for a commit */
  looked(
    what: string,
    shown: string,
    callMs: number,
    by: {
      readonly role: ReaderRole;
      readonly dirty: boolean;
      readonly soon: boolean;
      readonly segment: number;
    },
  ): void {
    this.counts.reads++;
    if (this.counts.punches > 0 && shown.includes('\0')) this.counts.holeReads++;
    if (by.role === 'backup') {
      this.counts.localReads++;
      if (by.soon) this.counts.localReadsSoon++;
      if (by.dirty) this.counts.localReadsDirty++;
    }
    const entry: HistoryEntry = { kind: 'look', what, shown, callMs, returnMs: this.#nowMs() };
    this.#segments[by.segment]?.entries.push(entry);
  }

  /** Whether an operation was committed only just now. */
  get isSoon(): boolean {
    return this.#nowMs() - this.#committedMs <= SOON_MS;
  }

  /** What was called in an earlier part of the history may have happened in any part up to its answer. */
  #record(entry: HistoryEntry, called: number, answered: number): void {
    for (let segment = called; segment < answered; segment++) {
      this.#segments[segment]?.entries.push({ ...entry, returnMs: Infinity, seq: null } as HistoryEntry);
    }
    this.#segments[answered]?.entries.push(entry);
  }

  /** Judges the histories. @throws Violation */
  judge(): void {
    (this.#segments.at(-1) as Segment).sequence = this.#committed;
    for (const [request, { wish, callMs, segment }] of this.#open) {
      const entry: HistoryEntry = {
        kind: 'change',
        request,
        wish,
        answer: null,
        callMs,
        returnMs: Infinity,
        seq: null,
      };
      this.#record(entry, segment, this.segment);
    }
    this.#open.clear();
    for (const [segment, { entries, sequence, baseSeq }] of this.#segments.entries()) {
      for (const { request } of sequence) {
        if ((this.#failed.get(request) ?? Infinity) > segment) continue;
        throw new Violation(`${request} failed for its client, and stands`);
      }
      const violation = this.#subject.judge({ entries, sequence, baseSeq });
      if (violation !== null) throw new Violation(violation);
    }
  }
}

function isSame(a: Logged, b: Logged): boolean {
  return a.request === b.request && Buffer.compare(a.operation.body, b.operation.body) === 0;
}
