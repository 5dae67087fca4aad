import { assert } from '../base/assert.ts';
import type { ServerId } from '../base/ids.ts';
import type { Epoch, Position } from './epoch.ts';
import { epochCompare, epochEqual, POSITION_ZERO, positionCompare } from './epoch.ts';
import type { Operation } from './operation.ts';
import type { Outbox } from './outbox.ts';
import type { ReplicaRecord, Trust } from './record.ts';
import { SessionTable } from './sessions.ts';
import type { View } from './view.ts';
import { sameServers } from './view.ts';

/** An installation under way: of a new epoch, or within an epoch of a newer state of the primary. */
export interface Install {
  readonly epoch: Epoch;
  /** A replica at this position keeps its contents and only stamps them; others fetch from `from`. */
  readonly base: Position;
  readonly from: ServerId;
  readonly urgent: boolean;
  /** `waiting` for the disk to be at rest, `fetching` beside the local contents, `storing` for good. */
  stage: 'waiting' | 'fetching' | 'storing';
  /** The position that is being stored if it is only a part of the source's state. */
  part: Position | null;
  seq: number;
  view: View;
  sessions: SessionTable;
}

/** The replica's state, and what the disk is still storing. Fields change when stored; `promised` binds at once. */
export class ReplicaState {
  readonly #out: Outbox;
  /** pe: smaller epochs are refused. Never decreases. */
  promised: Epoch;
  /** The part of `promised` that survives a crash; nothing is answered in an epoch before that. */
  stored: Epoch;
  /** ae ≤ stored: the epoch whose base is here. */
  installed: Epoch;
  seq: number;
  /** The last operation given to the disk; those after `seq` are under way, in order. */
  issuedSeq: number;
  sessions: SessionTable;
  /** As of `issuedSeq`: a change of members counts once accepted. */
  view: View;
  /** The last view reported to the lease. */
  #reportedView: View;
  trust: Trust;
  install: Install | null = null;

  constructor(out: Outbox, record: ReplicaRecord, trust: Trust) {
    assert(epochCompare(record.installed, record.promised) <= 0, 'Nothing is installed without a promise');
    this.#out = out;
    this.promised = record.promised;
    this.stored = record.promised;
    this.installed = record.installed;
    this.seq = record.seq;
    this.issuedSeq = record.seq;
    this.sessions = SessionTable.decode(record.sessions);
    this.view = record.view;
    this.#reportedView = record.view;
    this.trust = trust;
  }

  get position(): Position {
    return { epoch: this.installed, seq: this.seq };
  }

  /** Nothing under way can still move the position. */
  get isAtRest(): boolean {
    return this.seq === this.issuedSeq && this.install?.stage !== 'storing';
  }

  /** The promise survives a crash and the position is final: both may be sent. */
  get isFinal(): boolean {
    return this.isAtRest && epochEqual(this.stored, this.promised);
  }

  /** Refuses every smaller epoch from now on, and drops a fetch for one. */
  promise(epoch: Epoch): void {
    assert(epochCompare(epoch, this.promised) > 0, 'A promise never moves back');
    this.promised = epoch;
    if (this.install !== null && this.install.stage !== 'storing') this.install = null;
    this.#out.push({ kind: 'promise', epoch });
  }

  /** Nothing was ever promised, installed, applied or lost here. */
  get isNew(): boolean {
    const { promised, installed, issuedSeq } = this;
    const untouched = promised.counter === 0 && installed.counter === 0 && issuedSeq === 0;
    return untouched && this.install === null && this.trust === 'intact';
  }

  /** The first epoch: an unconditional promise and an empty base, stored as one. */
  begin(epoch: Epoch): void {
    assert(this.isNew, 'Only what is new begins');
    const { view, sessions } = this;
    this.promised = epoch;
    this.install = {
      epoch,
      base: POSITION_ZERO,
      from: epoch.server,
      urgent: true,
      stage: 'storing',
      part: null,
      seq: 0,
      view,
      sessions,
    };
    this.#out.push({ kind: 'begin', epoch, view, sessions: sessions.encode() });
  }

  get isBeginning(): boolean {
    const { install, promised, installed } = this;
    return install?.stage === 'storing' && installed.counter === 0 && epochEqual(install.epoch, promised);
  }

  begun(epoch: Epoch): void {
    this.promiseStored(epoch);
    this.installStored(epoch, 0);
  }

  promiseStored(epoch: Epoch): void {
    assert(epochCompare(epoch, this.promised) <= 0, 'Only what was promised is stored');
    if (epochCompare(epoch, this.stored) > 0) this.stored = epoch;
  }

  /**
   * Gives the next operation to the disk. @param reports whether to report a change of view at once. A primary does so
   * after the commit: if it alone has the view, voters that know it would refuse the view of all others.
   */
  apply(operation: Operation, sessions: SessionTable, reports: boolean): void {
    assert(this.install === null, 'Contents that are about to be replaced do not change');
    this.issuedSeq++;
    this.sessions = sessions;
    if (operation.view !== undefined) this.#useView(operation.view, reports);
    this.#out.push({
      kind: 'apply',
      epoch: this.installed,
      seq: this.issuedSeq,
      operation,
      sessions: sessions.encode(),
    });
  }

  applied(epoch: Epoch, seq: number): void {
    assert(epochEqual(epoch, this.installed), 'An epoch is installed only once the disk is at rest');
    assert(seq > this.seq && seq <= this.issuedSeq, 'Operations are applied in order');
    this.seq = seq;
  }

  /** Makes the contents, local or fetched, those of the epoch: all or nothing. */
  storeInstall(
    install: Install,
    { seq, view, sessions }: { readonly seq: number; readonly view: View; readonly sessions: SessionTable },
    fetched: boolean,
  ): void {
    assert(this.isFinal && epochEqual(install.epoch, this.promised), 'Only the promised epoch is installed');
    install.stage = 'storing';
    install.seq = seq;
    install.view = view;
    install.sessions = sessions;
    const { epoch } = install;
    this.#out.push({ kind: 'install', epoch, seq, view, sessions: sessions.encode(), fetched });
  }

  /**
   * Moves the local contents to a later state of the same history, which is not yet the base to install. What others
   * find here is then at the position of that state, and trusted as before.
   */
  storePart(
    install: Install,
    position: Position,
    { view, sessions }: { readonly view: View; readonly sessions: SessionTable },
  ): void {
    assert(
      this.isFinal && epochEqual(install.epoch, this.promised),
      'Only the promised epoch is fetched for',
    );
    assert(
      epochCompare(position.epoch, this.promised) <= 0,
      'A part is of no later epoch than the promised one',
    );
    assert(positionCompare(position, this.position) > 0 && position.seq > this.seq, 'A part adds operations');
    install.stage = 'storing';
    install.part = position;
    install.view = view;
    install.sessions = sessions;
    this.#out.push({ kind: 'install-part', position, view, sessions: sessions.encode() });
  }

  /** The part is here. The rest is to be fetched, unless a larger epoch was promised meanwhile. */
  partStored(position: Position): void {
    const { install } = this;
    assert(install !== null && install.stage === 'storing', 'What is installed was ordered');
    assert(install.part !== null && positionCompare(install.part, position) === 0, 'It is the part ordered');
    this.installed = position.epoch;
    this.seq = position.seq;
    this.issuedSeq = position.seq;
    this.sessions = install.sessions;
    this.#useView(install.view, true);
    this.install = epochEqual(install.epoch, this.promised)
      ? { ...install, stage: 'fetching', part: null }
      : null;
  }

  installStored(epoch: Epoch, seq: number): void {
    const { install } = this;
    assert(install !== null && install.stage === 'storing', 'What is installed was ordered');
    assert(install.part === null, 'A part is not the base');
    assert(epochEqual(install.epoch, epoch) && install.seq === seq, 'What is installed is what was ordered');
    this.install = null;
    this.installed = epoch;
    this.seq = seq;
    this.issuedSeq = seq;
    this.sessions = install.sessions;
    this.trust = 'intact';
    this.#useView(install.view, true);
  }

  #useView(view: View, reports: boolean): void {
    if (!isSame(view, this.view)) {
      this.view = view;
      this.#out.trace('view-changed', `${view.number}: ${view.members.join()} ${view.joint?.join() ?? ''}`);
    }
    if (reports) this.reportView();
  }

  reportView(): void {
    if (isSame(this.view, this.#reportedView)) return;
    this.#reportedView = this.view;
    this.#out.push({ kind: 'view-changed', view: this.view });
  }
}

function isSame(a: View, b: View): boolean {
  return (
    a.number === b.number && sameServers(a.members, b.members) && sameServers(a.joint ?? [], b.joint ?? [])
  );
}

/** @returns the table after the operation became number `seq` */
export function sessionsAfter(sessions: SessionTable, seq: number, operation: Operation): SessionTable {
  const { request, result } = operation;
  return request === null ? sessions : sessions.with(request, seq, result);
}
