import type { ServerId } from '../base/ids.ts';
import type { Epoch } from './epoch.ts';
import { epochEqual, epochFormat } from './epoch.ts';
import type { Answer } from './messages.ts';
import type { Base, Reset } from './reset.ts';
import { type ReplicaParts, ReplicaRole, type Transitions } from './role.ts';
import { viewVoters } from './view.ts';
import { WriteOrder } from './write-order.ts';

/** A candidate: requests promises (preparing), then has a majority install the base (installing). */
export class Candidate extends ReplicaRole {
  readonly #reset: Reset;

  constructor(parts: ReplicaParts, roles: Transitions, reset: Reset) {
    super(parts, roles);
    this.#reset = reset;
  }

  get kind(): 'preparing' | 'installing' {
    return this.#reset.base === null ? 'preparing' : 'installing';
  }

  override get epoch(): Epoch {
    return this.#reset.epoch;
  }

  override heartbeatDue(): void {
    for (const voter of this.#others()) this.#request(voter);
  }

  override peerConnected(peer: ServerId): void {
    if (this.#reset.voters.has(peer) && peer !== this.parts.config.self) this.#request(peer);
  }

  override peerRestarted(peer: ServerId): void {
    this.#reset.forget(peer);
  }

  override answered(from: ServerId, message: Answer): void {
    const reset = this.#reset;
    if (!reset.voters.has(from)) {
      this.parts.out.trace('stranger', `${from} is no member`);
      return;
    }
    if (message.kind === 'promise') {
      const { position, view, trust } = message;
      const before = reset.voters.size;
      reset.addPromise(from, { position, view, trust });
      // Its view may contain members that this server does not know.
      if (reset.voters.size > before) this.heartbeatDue();
      // Too late to be considered for the base: it gets the base.
      if (reset.base !== null) this.#request(from);
    }
    if (message.kind === 'installed' && reset.base !== null) reset.noteInstalled(from, message.seq);
  }

  override installedHere(epoch: Epoch, seq: number): void {
    const reset = this.#reset;
    if (reset.base === null || !epochEqual(reset.epoch, epoch)) return;
    reset.noteInstalled(this.parts.config.self, seq);
    // Voters that need only the stamp were asked when the base was chosen.
    for (const voter of this.#others()) if (!reset.needsOnlyStamp(voter)) this.#request(voter);
  }

  /** Replica reset, steps 2 and 3: once a majority promised, the largest position is the base, which is installed. */
  override prepare(nowMs: number): void {
    const reset = this.#reset;
    if (reset.base !== null) return;
    const { config, state, out } = this.parts;
    const { position, view, trust } = state;
    if (state.isFinal) reset.addPromise(config.self, { position, view, trust });
    const base = reset.choose(nowMs);
    if (base !== null) this.#install(base, nowMs);
    else if (reset.noticeDistrust()) out.trace('distrusted', epochFormat(reset.epoch));
  }

  /** Step 4: takes the base over, and has the others do the same. */
  #install({ position, holder }: Base, nowMs: number): void {
    const reset = this.#reset;
    const { config, out, candidacy, backup } = this.parts;
    if (position.epoch.counter >= reset.epoch.counter) {
      // A server that was cut off counts from its old epoch. Here the epochs differ in the server name only, and
      // content versions, which have only the counter, would be ambiguous.
      candidacy.refused(position.epoch.counter);
      this.roles.abandonReset(reset.epoch, nowMs);
      return;
    }
    out.trace(holder === config.self ? 'base-own' : 'base-fetched', `${holder}/${position.seq}`);
    if (!viewVoters(reset.view).includes(config.self)) {
      // The members changed without this server: another one has to get the lease.
      candidacy.outside = reset.view;
      out.trace('outside', `${reset.view.number}: ${reset.view.members.join()}`);
      this.roles.stop();
      return;
    }
    this.roles.become(this);
    backup.startInstall(reset.epoch, position, holder, true);
    for (const voter of this.#others()) this.#request(voter);
  }

  /** Step 5: becomes primary once a majority has the base, so that no later epoch can miss it. */
  override advance(nowMs: number): void {
    const reset = this.#reset;
    const { base, installed, epoch, inheritedFrom } = reset;
    if (base === null || !reset.isComplete() || this.#mayBeReadByGrant(nowMs)) return;
    // An earlier candidate may have been primary, if only for the replicas that promised to it.
    const isFirst = base.position.epoch.counter === 0 && epoch.counter === this.parts.config.candidatesFrom;
    this.roles.noteOrigin({ isFirst, inheritedFrom });
    const start = { base: base.position, installed, start: 'unknown', hasLease: true } as const;
    const order = new WriteOrder(this.parts, start, nowMs);
    const primary = this.roles.serve(order);
    this.parts.schedule.beat(order, nowMs);
    primary.advance(nowMs);
  }

  /**
   * Whether a backup may still answer reads by a lease of an earlier epoch of this process; the new epoch may begin
   * with more than it has. A replica that promised the new epoch dropped its read lease.
   */
  #mayBeReadByGrant(nowMs: number): boolean {
    const holders = this.parts.grants.holders(nowMs);
    return holders.some((server) => !this.#reset.hasPromised(server) && !this.#reset.hasInstalled(server));
  }

  override wakeAtMs(nowMs: number): number {
    const { schedule, grants } = this.parts;
    const grantEndMs = this.#reset.base === null ? Infinity : grants.nextEndMs(nowMs);
    return Math.min(schedule.nextMs, grantEndMs);
  }

  #others(): ServerId[] {
    return [...this.#reset.voters].filter((voter) => voter !== this.parts.config.self);
  }

  /** Sends a voter the request of this reset that it has not answered: PREPARE, or the install once there is a base. */
  #request(voter: ServerId): void {
    const reset = this.#reset;
    const { out, config, peerIncarnations } = this.parts;
    const { epoch, base, view } = reset;
    if (base === null) {
      if (!reset.hasPromised(voter)) out.send(voter, { kind: 'prepare', epoch, view });
    } else if (
      (reset.hasInstalled(config.self) || reset.needsOnlyStamp(voter)) &&
      !reset.hasInstalled(voter)
    ) {
      // A voter that needs more than the stamp fetches from here, after this server installed the base.
      const to = peerIncarnations.of(voter);
      out.send(voter, { kind: 'install', epoch, view, base: base.position, to, urgent: true });
    }
  }
}
