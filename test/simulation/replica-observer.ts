/**
 * Knows all servers of a replica group at once, and asserts the rules: each position has one operation, each request
 * is executed once, acknowledged operations stay, replicas at one position are equal, and a server that may answer
 * reads has every committed operation. A read is judged when it is served: it shows the newest committed state of that
 * moment or, if a majority was asked, of a moment since it began.
 */
import { crc32 } from 'node:zlib';
import type { ServerId } from '../../base/ids.ts';
import type { Epoch } from '../../replica/epoch.ts';
import { epochEqual, epochFormat } from '../../replica/epoch.ts';
import type { View } from '../../replica/view.ts';
import { viewIsAt } from '../../replica/view.ts';
import type { Log, Logged, ReplicaDisk } from './replica-disk.ts';
import { Violation } from './violation.ts';

/** Reads within this time after a commit could show an old value at a backup, in milliseconds. */
const SOON_MS = 10;

export class ReplicaObserver {
  /** Counts of what runs must have. */
  readonly counts = {
    epochs: 0,
    acknowledged: 0,
    reads: 0,
    /** Reads at backups, those soon after a commit, and those that had to wait for one. */
    localReads: 0,
    localReadsSoon: 0,
    localReadsDirty: 0,
    agreedReads: 0,
    flushes: 0,
    viewChanges: 0,
    /** A change of members that another primary than the one that began it completed. */
    viewChangesInherited: 0,
    /** Acknowledged operations that were not flushed, and lost after a majority lost power. */
    vanished: 0,
  };
  /** The view that counts votes, according to the committed operations. */
  view: View;
  readonly #nowMs: () => number;
  /** All operations known to be committed, by position. */
  #committed: Logged[] = [];
  #requests = new Set<string>();
  /** The part of a log that was compared with them. */
  readonly #comparedSeq = new WeakMap<Log, number>();
  readonly #refused = new Set<string>();
  readonly #digests = new Map<string, number>();
  readonly #epochs = new Set<string>();
  #flushedSeq = 0;
  #committedMs = -Infinity;
  /** A majority has lost power: unsynced operations may be gone when the next epoch begins. */
  #mayForget = false;
  #hasForgotten = false;

  constructor(view: View, nowMs: () => number) {
    this.#nowMs = nowMs;
    this.view = view;
  }

  /** The number of operations known to be committed. */
  get committedSeq(): number {
    return this.#committed.length;
  }

  /** A primary, or an agreeing majority, reports that all operations up to `seq` are committed. */
  committed(server: ServerId, seq: number, log: Log): void {
    if (log.length < seq) throw new Violation(`${server} commits ${seq} and has ${log.length}`);
    const from = this.#comparedSeq.get(log) ?? 0;
    for (let index = Math.min(from, this.#committed.length); index < seq; index++) {
      const logged = log[index] as Logged;
      const before = this.#committed[index];
      if (before === undefined) this.#commit(logged);
      else if (before.digest !== logged.digest)
        throw new Violation(`Position ${index + 1} is ${before.request}, and at ${server} ${logged.request}`);
    }
    this.#comparedSeq.set(log, Math.max(from, seq));
  }

  #commit(logged: Logged): void {
    const { request, operation, epoch } = logged;
    if (this.#refused.has(request)) throw new Violation(`${request} was refused, and is committed`);
    if (this.#requests.has(request)) throw new Violation(`${request} is committed twice`);
    this.#committed.push(logged);
    this.#requests.add(request);
    this.#committedMs = this.#nowMs();
    const { view } = operation;
    if (view === undefined) return;
    const { joint } = this.view;
    this.view = view;
    if (view.joint !== undefined || joint === undefined) return;
    if (!viewIsAt(view, joint)) throw new Violation(`View ${view.number} has not the members it was to have`);
    this.counts.viewChanges++;
    const began = this.#committed.findLast((other) => other.operation.view?.number === view.number - 1);
    if (began !== undefined && !epochEqual(began.epoch, epoch)) this.counts.viewChangesInherited++;
  }

  /** A backup has learned that all operations up to `seq` are committed. */
  backupCommitted(server: ServerId, seq: number, log: Log): void {
    // A server that was paused while others lost operations with their power still takes these as committed.
    if (this.#mayForget) return;
    const from = this.#comparedSeq.get(log) ?? 0;
    for (let index = from; index < seq; index++) {
      if (log[index] !== undefined && this.#committed[index]?.digest === log[index]?.digest) continue;
      throw new Violation(`${server} takes ${log[index]?.request} at ${index + 1} for committed`);
    }
    this.#comparedSeq.set(log, Math.max(from, seq));
  }

  /** The server may answer reads at this moment. */
  mayShow(server: ServerId, log: Log): void {
    if (log.length >= this.#committed.length) return;
    throw new Violation(
      `${server} may answer reads with ${log.length} of ${this.#committed.length} operations`,
    );
  }

  /** The server answers a read through its replica. @param seq of the operation that set the value */
  shows(server: ServerId, log: Log, seq: number, by: 'primary' | 'backup', waited: boolean): void {
    this.mayShow(server, log);
    if (seq > this.#committed.length)
      throw new Violation(`${server} shows operation ${seq} of ${this.#committed.length} that are committed`);
    this.counts.reads++;
    if (by === 'primary') return;
    this.counts.localReads++;
    if (this.#nowMs() - this.#committedMs <= SOON_MS) this.counts.localReadsSoon++;
    if (waited) this.counts.localReadsDirty++;
  }

  /**
   * A majority, asked one server after the other, agreed that the log is committed. @param beganSeq `committedSeq`
   * before
   */
  showsAgreed(server: ServerId, log: Log, beganSeq: number): void {
    this.committed(server, log.length, log);
    this.counts.reads++;
    this.counts.agreedReads++;
    if (log.length < Math.min(beganSeq, this.#committed.length))
      throw new Violation(`${server} agrees about ${log.length} of ${beganSeq} operations`);
  }

  /** A primary begins to serve, with a log that a majority has. */
  activated(epoch: Epoch, log: Log): void {
    const key = `${epochFormat(epoch)} of ${epoch.incarnation}`;
    if (this.#epochs.has(key)) throw new Violation(`Epoch ${epochFormat(epoch)} began twice`);
    this.#epochs.add(key);
    this.counts.epochs++;
    if (log.length >= this.#committed.length) return;
    if (!this.#mayForget)
      throw new Violation(`${epochFormat(epoch)} begins without ${this.#committed.at(-1)?.request}`);
    this.#forget(log.length);
  }

  /** Whether all that was ever acknowledged is still there. */
  get neverForgot(): boolean {
    return !this.#mayForget && !this.#hasForgotten;
  }

  /** A majority of some view loses power at once: only flushed operations must survive. */
  majorityLostPower(): void {
    this.#mayForget = true;
  }

  /** All voters are current again: from now on all acknowledged operations must survive again. */
  recovered(): void {
    this.#mayForget = false;
  }

  #forget(seq: number): void {
    if (seq < this.#flushedSeq)
      throw new Violation(`${this.#flushedSeq} operations were flushed, and ${seq} are left`);
    this.counts.vanished += this.#committed.length - seq;
    this.#hasForgotten = true;
    this.#committed = this.#committed.slice(0, seq);
    this.#requests = new Set(this.#committed.map(({ request }) => request));
    for (const { operation } of this.#committed) if (operation.view !== undefined) this.view = operation.view;
  }

  /** Asserts that replicas at one position are equal. */
  stored(server: ServerId, { record, log }: ReplicaDisk): void {
    const { installed, seq, sessions } = record;
    if (log.length !== seq) throw new Violation(`${server} stores ${seq} out of order`);
    const key = `${epochFormat(installed)}.${installed.incarnation}/${seq}`;
    const hash = crc32(sessions, log.at(-1)?.digest ?? 0);
    const before = this.#digests.get(key);
    if (before === undefined) this.#digests.set(key, hash);
    else if (before !== hash) throw new Violation(`${server} differs from another replica at ${key}`);
  }

  /** A server has answered that all operations up to `seq` survive. */
  flushed(seq: number): void {
    this.counts.flushes++;
    this.#flushedSeq = Math.max(this.#flushedSeq, seq);
  }

  /** A server has answered that the change is committed at `seq`. */
  answered(request: string, seq: number): void {
    this.counts.acknowledged++;
    const found = this.#committed[seq - 1]?.request;
    if (found !== request) throw new Violation(`${request} was acknowledged at ${seq}, which is ${found}`);
  }

  /** A client takes a refusal as final: the change must never happen. */
  refused(request: string): void {
    this.#refused.add(request);
    if (this.#requests.has(request)) throw new Violation(`${request} was refused, and is committed`);
  }
}
