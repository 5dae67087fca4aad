/**
 * The disk of one server for one replica: its record and the log of its operations. Applied operations survive the end
 * of the process. A loss of power removes those that were not synced, back to a random point after the last sync.
 * Promises, installations and changes of members are synced, as `ReplicaAction` demands.
 */
import { crc32 } from 'node:zlib';
import { assert } from '../../base/assert.ts';
import type { Prng } from '../../base/prng.ts';
import type { Epoch, Position } from '../../replica/epoch.ts';
import { EPOCH_ZERO, epochCompare, epochEqual } from '../../replica/epoch.ts';
import type { Operation } from '../../replica/operation.ts';
import type { ReplicaRecord, Trust } from '../../replica/record.ts';
import { sessionsAfter } from '../../replica/replica-state.ts';
import { SessionTable } from '../../replica/sessions.ts';
import type { View } from '../../replica/view.ts';

/** A change by a client: it sets a register to a value. */
export interface Write {
  readonly key: string;
  readonly value: string;
}

/** An operation at its position of the log. */
export interface Logged {
  /** The unique name of the request; for a change of members the name of the view. */
  readonly request: string;
  /** Null for a change of members. */
  readonly write: Write | null;
  readonly epoch: Epoch;
  readonly operation: Operation;
  /** Of this operation and all before it. */
  readonly digest: number;
}

export type Log = readonly Logged[];

/** A fetched part of a state. */
export interface Part {
  readonly position: Position;
  readonly view: View;
  readonly sessions: Uint8Array;
  readonly log: Log;
}

interface Applied {
  readonly epoch: Epoch;
  readonly seq: number;
  readonly operation: Operation;
  readonly sessions: Uint8Array;
}

const NO_SESSIONS = SessionTable.EMPTY.encode();
const TEXT = new TextDecoder();
const BYTES = new TextEncoder();

/** @param request its unique name, which is also the result */
export function operationOf(
  request: string,
  { key, value }: Write,
  id: Operation['request'] = null,
): Operation {
  return { request: id, result: BYTES.encode(request), body: BYTES.encode(`${key} ${value}`) };
}

export function loggedAt(log: Log, epoch: Epoch, operation: Operation): Logged {
  const { view } = operation;
  const request = view === undefined ? TEXT.decode(operation.result) : `view ${view.number}`;
  const body = TEXT.decode(operation.body);
  const [key, value] = [body.slice(0, body.indexOf(' ')), body.slice(body.indexOf(' ') + 1)];
  const digest = crc32(`${request}|${key}|${value}|${view?.members}|${view?.joint}`, log.at(-1)?.digest ?? 0);
  return { request, write: view === undefined ? { key, value } : null, epoch, operation, digest };
}

/** @returns the value of a register */
export function valueIn(log: Log, key: string): string {
  return log.findLast(({ write }) => write?.key === key)?.write?.value ?? '';
}

/**
 * @returns the operation of the epoch that a read of the register depends on; 0 if no operation of the epoch changed
 * it
 */
export function dependsOn(log: Log, key: string, counter: number): number {
  const index = log.findLastIndex(({ write }) => write?.key === key);
  return index >= 0 && log[index]?.epoch.counter === counter ? index + 1 : 0;
}

export class ReplicaDisk {
  record: ReplicaRecord;
  log: Logged[] = [];
  /** Some contents cannot be read: the next applied operation fails. */
  isDamaged = false;
  /** A failed operation has shown the damage. */
  isDamageKnown = false;
  #trust: Exclude<Trust, 'damaged'>;
  /** The state at the last installation, which was synced. */
  #base: { readonly record: ReplicaRecord; readonly log: Log };
  #applied: Applied[] = [];
  #syncedSeq = 0;
  /** Created with contents and not synced since: a loss of power may remove the whole replica. */
  #isUnsynced = false;

  constructor(view: View, trust: Exclude<Trust, 'damaged'>) {
    this.record = {
      view,
      promised: EPOCH_ZERO,
      installed: EPOCH_ZERO,
      seq: 0,
      sessions: new Uint8Array(),
    };
    this.#trust = trust;
    this.#base = { record: this.record, log: [] };
  }

  get trust(): Trust {
    return this.isDamageKnown && this.#trust === 'intact' ? 'damaged' : this.#trust;
  }

  get position(): Position {
    return { epoch: this.record.installed, seq: this.record.seq };
  }

  promise(promised: Epoch): void {
    this.#isUnsynced = false;
    this.record = { ...this.record, promised };
  }

  begin(epoch: Epoch): void {
    assert(this.record.promised.counter === 0, 'Only an empty replica begins');
    this.promise(epoch);
    const { seq, view, sessions } = this.record;
    this.install({ installed: epoch, seq, view, sessions }, null);
  }

  /** Creates the replica with contents, which are not synced. */
  create(epoch: Epoch, operation: Operation): void {
    this.begin(epoch);
    this.apply(epoch, 1, operation, NO_SESSIONS);
    this.#isUnsynced = true;
  }

  apply(epoch: Epoch, seq: number, operation: Operation, sessions: Uint8Array): void {
    assert(seq === this.record.seq + 1, 'Operations are applied in order');
    this.#applied.push({ epoch, seq, operation, sessions });
    this.#redo({ epoch, seq, operation, sessions });
    // With an older view, a majority of other members could decide.
    if (operation.view !== undefined) this.#syncedSeq = seq;
  }

  #redo({ epoch, seq, operation, sessions }: Applied): void {
    this.log.push(loggedAt(this.log, epoch, operation));
    this.record = { ...this.record, seq, sessions, view: operation.view ?? this.record.view };
  }

  /** @param log that of another replica; null keeps the present one */
  install(change: Omit<ReplicaRecord, 'promised'>, log: Log | null): void {
    this.#isUnsynced = false;
    if (log !== null) {
      this.log = [...log];
      this.isDamaged = false;
      this.isDamageKnown = false;
    }
    this.record = { ...this.record, ...change };
    assert(this.log.length === this.record.seq, 'The log has each operation of the installed state');
    this.#trust = 'intact';
    this.#base = { record: this.record, log: [...this.log] };
    this.#applied = [];
    this.#syncedSeq = this.record.seq;
  }

  /** @returns a state of another replica's history between the one here and the last; null if there is none */
  partOf(log: Log): Part | null {
    const { seq, installed } = this.record;
    const own = this.log.at(-1)?.digest;
    if (this.isDamaged || log.length < seq + 2 || log[seq - 1]?.digest !== own) return null;
    const part = log.slice(0, seq + Math.ceil((log.length - seq) / 2));
    const { epoch } = part.at(-1) as Logged;
    if (epochCompare(epoch, installed) < 0) return null;
    let { view, sessions } = this.record;
    for (const [at, { operation }] of part.entries()) {
      if (at < seq) continue;
      view = operation.view ?? view;
      sessions = sessionsAfter(SessionTable.decode(sessions), at + 1, operation).encode();
    }
    return { position: { epoch, seq: part.length }, view, sessions, log: part };
  }

  /** Adds a part of another replica's log, synced. What was lost before is still missing. */
  installPart(position: Position, view: View, sessions: Uint8Array, log: Log): void {
    assert(log.length === position.seq && log.length > this.log.length, 'A part adds operations');
    this.#isUnsynced = false;
    this.log = [...log];
    this.record = { ...this.record, installed: position.epoch, seq: position.seq, view, sessions };
    this.#base = { record: this.record, log: [...this.log] };
    this.#applied = [];
    this.#syncedSeq = position.seq;
  }

  /** Operations up to `seq` survive a loss of power. */
  synced(epoch: Epoch, seq: number): void {
    // A flush that was ordered before another state was installed says nothing about that state.
    if (!epochEqual(epoch, this.record.installed)) return;
    this.#isUnsynced = false;
    this.#syncedSeq = Math.max(this.#syncedSeq, seq);
  }

  /**
   * @param dice null: all that was not synced is lost. @returns the number of lost operations; `all`: the replica is
   * lost
   */
  losePower(dice: Prng | null): number | 'all' {
    const { seq, promised } = this.record;
    if (this.#isUnsynced && (dice === null || dice.chance(0.5))) return 'all';
    this.#isUnsynced = false;
    const keptSeq = dice === null || dice.chance(0.3) ? this.#syncedSeq : dice.integer(this.#syncedSeq, seq);
    if (this.#trust === 'intact') this.#trust = 'suspect';
    if (keptSeq === seq) return 0;
    this.record = { ...this.#base.record, promised };
    this.log = [...this.#base.log];
    this.#applied = this.#applied.filter((applied) => applied.seq <= keptSeq);
    for (const applied of this.#applied) this.#redo(applied);
    assert(this.record.seq === keptSeq, 'What was synced is still there');
    return seq - keptSeq;
  }
}
