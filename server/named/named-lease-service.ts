import { assert } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import type { ServerId } from '../../base/ids.ts';
import {
  CLAIM_NOTE_MAX,
  type ClaimedLease,
  type LeaseOrder,
  type LeaseOutcome,
} from '../../lease/actions.ts';
import {
  isLeaseKey,
  isLeaseName,
  isLeaseOwner,
  LEASE_KEY_FORM,
  LEASE_KEYS_MAX,
  LEASE_NAME_FORM,
  LEASE_OWNER_FORM,
  LEASE_VALUE_MAX,
  type LeaseKeys,
  type LeaseNote,
  leaseNoteParse,
  leaseNoteText,
} from '../../wire/named-lease.ts';
import type { GrantedLease, LeaseKeyValue, LeaseQueryAnswer } from '../../wire/named-lease-api.ts';
import type { NamedLeaseDriver } from './named-lease-driver.ts';

/** Longest wait for a majority; the client may repeat the request. */
const ASK_MS_MAX = 5_000;
/** Of a change of keys, while the holder's other changes come between. */
const KEY_ATTEMPTS_MAX = 16;
/** A shorter lease, in clock skews, would be mostly uncertainty. */
const SKEWS_PER_LEASE_MIN = 4;

interface KeyChange {
  /** Null: as the lease was acquired. */
  readonly ttlMs: number | null;
  /** Its number in the session; null: none. */
  readonly change: number | null;
  changed(keys: LeaseKeys): LeaseKeys;
}

export interface NamedLeaseServiceParts {
  readonly driver: Pick<NamedLeaseDriver, 'execute' | 'claimOf' | 'isMember' | 'membersOf'>;
  readonly leaseMaxMs: number;
  readonly clockSkewMaxMs: number;
  readonly operationTimeoutMs: number;
  nowMs(): number;
  isConnected(server: ServerId): boolean;
}

/** The operations of clients on named leases. Any server serves them: it runs the protocol with the name's members. */
export class NamedLeaseService {
  readonly #parts: NamedLeaseServiceParts;

  /** Changes of keys that are under way, by session and name. */
  readonly #changing = new Map<string, Promise<unknown>>();

  constructor(parts: NamedLeaseServiceParts) {
    this.#parts = parts;
  }

  /** Shortest and longest lease that a client may ask for, in milliseconds. */
  get spanLimits(): { readonly minMs: number; readonly maxMs: number } {
    const { clockSkewMaxMs, leaseMaxMs } = this.#parts;
    return { minMs: SKEWS_PER_LEASE_MIN * clockSkewMaxMs, maxMs: leaseMaxMs };
  }

  /**
   * Acquires a lease. The same session may repeat it, and is granted what it holds.
   * @throws ServiceError `lease-taken` with the holder; `unknown` without a majority: it may have happened
   */
  async acquire(
    name: string,
    session: number,
    owner: string,
    ttlMs: number,
    keys: LeaseKeys,
  ): Promise<GrantedLease> {
    assertName(name);
    this.#assertSpan(ttlMs);
    if (!isLeaseOwner(owner))
      throw new ServiceError('bad-request', `Invalid "owner": it has ${LEASE_OWNER_FORM}`);
    const note = noteOf({ name, owner, ttlMs, keys });
    const { outcome, askedMs } = await this.#ask(name, { kind: 'acquire', session, spanMs: ttlMs, note });
    if (outcome.kind === 'granted') return this.#granted(name, outcome.lease);
    if (outcome.kind !== 'taken') throw this.#unknownError(name);
    throw this.#takenError(name, outcome.lease, askedMs);
  }

  /**
   * Moves the lease's end to `ttlMs` from now; null: the duration that it was acquired with. `keys`: null keeps them.
   * @param change number of the change of keys; null: it has none
   * @throws ServiceError `lease-lost`; `unknown`
   */
  async refresh(
    name: string,
    session: number,
    ttlMs: number | null,
    keys: LeaseKeys | null,
    change: number | null = null,
  ): Promise<GrantedLease> {
    assertName(name);
    if (ttlMs !== null) this.#assertSpan(ttlMs);
    if (keys !== null) return this.#changeKeys(name, session, { ttlMs, change, changed: () => keys });
    const spanMs = ttlMs ?? (await this.#noteIfHeld(name, session)).note.ttlMs;
    const lease = await this.#refresh(name, session, spanMs, null);
    assert(lease !== null, 'A refresh that keeps the note does not depend on it');
    return this.#granted(name, lease);
  }

  /** Releases a lease, which may have ended. @throws ServiceError `lease-lost` if another session has it; `unknown` */
  async release(name: string, session: number): Promise<void> {
    assertName(name);
    const { outcome, askedMs } = await this.#ask(name, { kind: 'release', session });
    if (outcome.kind === 'unknown') throw this.#unknownError(name);
    const holder = 'lease' in outcome ? outcome.lease : null;
    if (holder !== null && holder.session !== session && holder.remainingMs > 0) {
      throw this.#lostError(name, holder, askedMs);
    }
  }

  /** Returns the lease's state at a majority. @throws ServiceError `no-majority` */
  async query(name: string): Promise<LeaseQueryAnswer> {
    assertName(name);
    const { lease, askedMs } = await this.#queryMajority(name);
    return this.#queryAnswer(name, lease, 'majority', askedMs);
  }

  /** Returns the lease's state at this server; null if it is no member. */
  queryLocal(name: string): LeaseQueryAnswer | null {
    assertName(name);
    const { driver } = this.#parts;
    return driver.isMember(name) ? this.#knownHere(name, driver.claimOf(name)) : null;
  }

  /** As `queryLocal`, for a member, but null if another name with the same cell has the lease. Never throws. */
  memberState(name: string): LeaseQueryAnswer | null {
    const claim = this.#parts.driver.claimOf(name);
    const isOther = claim !== null && claim.remainingMs > 0 && leaseNoteParse(claim.note)?.name !== name;
    return isOther ? null : this.#knownHere(name, claim);
  }

  async readKey(name: string, key: string): Promise<LeaseKeyValue> {
    assertKey(key);
    const { held, keys, token } = await this.query(name);
    const value = Object.hasOwn(keys, key) ? keys[key] : undefined;
    if (value === undefined) {
      const why = held ? 'the holder has not set it' : 'the lease has no holder';
      throw new ServiceError('not-found', `There is no key "${key}" at lease "${name}": ${why}`);
    }
    return { name, key, value, token };
  }

  /**
   * Sets a key (null removes it), and refreshes the lease.
   * @param change as of `refresh`
   */
  async writeKey(
    name: string,
    session: number,
    key: string,
    value: string | null,
    change: number | null = null,
  ): Promise<GrantedLease> {
    assertName(name);
    assertKey(key);
    const changed = (before: LeaseKeys): LeaseKeys => {
      const keys = new Map(Object.entries(before));
      if (value === null) keys.delete(key);
      else keys.set(key, value);
      return Object.fromEntries(keys);
    };
    return this.#changeKeys(name, session, { ttlMs: null, change, changed });
  }

  /** Changes of one session come one after the other; those at other servers in between are seen. */
  async #changeKeys(name: string, session: number, wanted: KeyChange): Promise<GrantedLease> {
    const turn = `${session} ${name}`;
    const before = this.#changing.get(turn) ?? Promise.resolve();
    const work = (): Promise<GrantedLease> => this.#replaceKeys(name, session, wanted);
    const mine = before.then(work, work);
    this.#changing.set(turn, mine);
    try {
      return await mine;
    } finally {
      if (this.#changing.get(turn) === mine) this.#changing.delete(turn);
    }
  }

  /** Replaces the keys that it has read, and no others. */
  async #replaceKeys(
    name: string,
    session: number,
    { ttlMs, change, changed }: KeyChange,
  ): Promise<GrantedLease> {
    for (let attempts = 0; attempts < KEY_ATTEMPTS_MAX; attempts++) {
      const { note, text: before } = await this.#noteIfHeld(name, session);
      const spanMs = ttlMs ?? note.ttlMs;
      const last = note.change ?? 0;
      if (change !== null && change < last)
        throw new ServiceError(
          'precondition-failed',
          `Change ${change} of the keys of lease "${name}" comes too late: change ${last} is executed`,
        );
      const isNew = change === null || change > last;
      const next = { ...note, keys: changed(note.keys), ...(change === null ? {} : { change }) };
      const replaced = isNew ? { text: noteOf(next), before } : null;
      const lease = await this.#refresh(name, session, spanMs, replaced);
      if (lease !== null) return this.#granted(name, lease);
    }
    throw new ServiceError(
      'busy',
      `The keys of lease "${name}" change all the time: send one change at a time`,
    );
  }

  /** @returns null if the note is another one than its `before` */
  async #refresh(
    name: string,
    session: number,
    spanMs: number,
    note: Extract<LeaseOrder, { kind: 'refresh' }>['note'],
  ): Promise<ClaimedLease | null> {
    // The length may be that of the note, which other servers have sent.
    this.#assertSpan(spanMs);
    const { outcome, askedMs } = await this.#ask(name, { kind: 'refresh', session, spanMs, note });
    if (outcome.kind === 'granted') return outcome.lease;
    if (outcome.kind === 'changed') return null;
    if (outcome.kind === 'unknown') throw this.#unknownError(name);
    throw this.#lostError(name, outcome.lease, askedMs);
  }

  async #noteIfHeld(
    name: string,
    session: number,
  ): Promise<{ readonly note: LeaseNote; readonly text: string }> {
    const { lease, askedMs } = await this.#queryMajority(name);
    if (lease === null || lease.session !== session) throw this.#lostError(name, lease, askedMs);
    return { note: noteIn(name, lease), text: lease.note };
  }

  async #queryMajority(
    name: string,
  ): Promise<{ readonly lease: ClaimedLease | null; readonly askedMs: number }> {
    const { outcome, askedMs } = await this.#ask(name, { kind: 'query' });
    if (outcome.kind === 'unknown') {
      const unreachable = this.#unreachable(name);
      throw new ServiceError('no-majority', 'No majority of the servers that vote on this lease answered', {
        unreachable,
      });
    }
    return { lease: outcome.kind === 'free' ? null : outcome.lease, askedMs };
  }

  /** Executes an order at the name's servers. @returns also when it was sent, for messages about the holder */
  async #ask(
    name: string,
    order: LeaseOrder,
  ): Promise<{ readonly outcome: LeaseOutcome; readonly askedMs: number }> {
    const { driver, nowMs, operationTimeoutMs } = this.#parts;
    const askedMs = nowMs();
    const outcome = await driver.execute(name, order, Math.min(ASK_MS_MAX, operationTimeoutMs));
    return { outcome, askedMs };
  }

  #knownHere(name: string, claim: ClaimedLease | null): LeaseQueryAnswer {
    return this.#queryAnswer(name, claim, 'member', this.#parts.nowMs());
  }

  #granted(name: string, lease: ClaimedLease): GrantedLease {
    const { owner, ttlMs, keys } = noteIn(name, lease);
    const { session, token } = lease;
    return { name, owner, session, token, ttlMs, remainingMs: Math.floor(lease.remainingMs), keys };
  }

  #queryAnswer(
    name: string,
    lease: ClaimedLease | null,
    consistency: LeaseQueryAnswer['consistency'],
    askedMs: number,
  ): LeaseQueryAnswer {
    if (lease === null || lease.remainingMs <= 0) {
      const token = lease?.token ?? 0;
      return { name, held: false, owner: null, token, remainingMs: 0, keys: {}, consistency };
    }
    const { owner, keys } = noteIn(name, lease);
    const remainingMs = this.#remainingMs(lease, askedMs);
    return { name, held: true, owner, token: lease.token, remainingMs, keys, consistency };
  }

  #takenError(name: string, lease: ClaimedLease, askedMs: number): ServiceError {
    const { owner } = noteIn(name, lease);
    const holder = { owner, token: lease.token, remainingMs: this.#remainingMs(lease, askedMs) };
    return new ServiceError(
      'lease-taken',
      `Held by ${owner} for another ${holder.remainingMs} ms unless renewed`,
      { holder },
    );
  }

  #lostError(name: string, lease: ClaimedLease | null, askedMs: number): ServiceError {
    if (lease === null || lease.remainingMs <= 0) {
      return new ServiceError(
        'lease-lost',
        `Lease "${name}" has expired: acquire it again with a new session`,
      );
    }
    const { owner } = noteIn(name, lease);
    const holder = { owner, token: lease.token, remainingMs: this.#remainingMs(lease, askedMs) };
    return new ServiceError(
      'lease-lost',
      `Another holder, ${owner}, has the lease: stop using it, and acquire it again with a new session`,
      {
        holder,
      },
    );
  }

  #unknownError(name: string): ServiceError {
    return new ServiceError(
      'unknown',
      'No majority of the voters of this lease answered, so the outcome is ' +
        'unknown: repeat the request with the same session',
      { unreachable: this.#unreachable(name) },
    );
  }

  /** The remaining time of the lease in an answer, less the time since the request. */
  #remainingMs(lease: ClaimedLease, askedMs: number): number {
    return Math.max(0, Math.ceil(lease.remainingMs - (this.#parts.nowMs() - askedMs)));
  }

  #unreachable(name: string): string[] {
    return this.#parts.driver.membersOf(name).filter((server) => !this.#parts.isConnected(server));
  }

  #assertSpan(ttlMs: number): void {
    const { minMs, maxMs } = this.spanLimits;
    if (ttlMs >= minMs && ttlMs <= maxMs) return;
    throw new ServiceError(
      'bad-request',
      `"ttlMs" must be between ${minMs} (${SKEWS_PER_LEASE_MIN} clock skews) and ${maxMs} ` +
        `(--named-lease-max), not ${ttlMs}`,
    );
  }
}

export function assertName(name: string): void {
  if (isLeaseName(name)) return;
  throw new ServiceError(
    'bad-request',
    `Invalid lease name ${JSON.stringify(name)}: a name has ${LEASE_NAME_FORM}`,
  );
}

function assertKey(key: string): void {
  if (isLeaseKey(key)) return;
  throw new ServiceError('bad-request', `Invalid key ${JSON.stringify(key)}: a key has ${LEASE_KEY_FORM}`);
}

/** @throws ServiceError `bad-request` or `too-large` if it is more than a lease can carry */
function noteOf(note: LeaseNote): string {
  const pairs = Object.entries(note.keys);
  for (const [key, value] of pairs) {
    assertKey(key);
    if (value.length > LEASE_VALUE_MAX) {
      throw new ServiceError(
        'too-large',
        `The value of key "${key}" has ${value.length} characters, more than ${LEASE_VALUE_MAX}`,
      );
    }
  }
  if (pairs.length > LEASE_KEYS_MAX) {
    throw new ServiceError(
      'too-large',
      `A lease carries at most ${LEASE_KEYS_MAX} keys, not ${pairs.length}`,
    );
  }
  const text = leaseNoteText(note);
  if (text.length > CLAIM_NOTE_MAX) {
    throw new ServiceError(
      'too-large',
      `Name, owner and keys of a lease have ${text.length} characters as JSON, more than ${CLAIM_NOTE_MAX} together`,
    );
  }
  return text;
}

/** @throws ServiceError `lease-taken` if the lease is another name's; `internal` for a note of another release */
function noteIn(name: string, lease: ClaimedLease): LeaseNote {
  const note = leaseNoteParse(lease.note);
  if (note === null) throw new ServiceError('internal', "The record of the lease's holder cannot be decoded");
  if (note.name !== name) throw collision(name, note.name);
  return note;
}

function collision(name: string, other: string): ServiceError {
  return new ServiceError(
    'lease-taken',
    `Lease "${name}" is unavailable while lease "${other}" is held: their ` +
      'names hash to the same cell; choose another name',
  );
}
