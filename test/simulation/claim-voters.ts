/**
 * The voters of leases that clients hold, as they change in a simulation. The agreed view and the servers' disks
 * survive restarts. `VotersChange`, the production code, proposes the steps at an observer that asks each server in
 * turn and gets late answers. The next observer starts from nothing.
 */
import type { CellId, ServerId } from '../../base/ids.ts';
import { Prng } from '../../base/prng.ts';
import type { LeaseEvent } from '../../lease/actions.ts';
import type { LeaseFrame } from '../../lease/codec.ts';
import { type VoterSet, VotersChange, type VotersView, votersCount } from '../../lease/voters.ts';
import { CLOCK_SKEW_MAX_MS, LEASE_MS, RECOVERY_MS, TIMING } from './lease-world.ts';
import type { World } from './world.ts';

type AskEvent = Extract<LeaseEvent, { kind: 'ask' }>;

/** What the simulation knows of a server at one moment. */
interface Standing {
  /** The rest of its recovery wait. */
  readonly silentMs: number;
  readonly clockMs: number;
}

/** The servers that vote. */
interface Servers {
  readonly world: World<LeaseFrame>;
  standing(server: ServerId): Standing;
  /** The server has written the view to its disk. */
  adopted(server: ServerId, view: VotersView): void;
}

export class ClaimVoters {
  /** Counts of begun and ended changes. */
  readonly counts = { begun: 0, ended: 0 };
  readonly #servers: Servers;
  readonly #world: World<LeaseFrame>;
  readonly #disks = new Map<ServerId, VotersView>();
  #agreed: VotersView;
  #change = new VotersChange(TIMING);

  constructor(first: VoterSet, servers: Servers) {
    this.#servers = servers;
    this.#world = servers.world;
    this.#agreed = { number: 1, members: first, clockMs: 0 };
    for (const id of this.#world.ids) this.#disks.set(id, this.#agreed);
  }

  /** The view on a server's disk. */
  of(server: ServerId): VotersView {
    const view = this.#disks.get(server);
    if (view === undefined) throw new Error(`Server ${server} has no disk`);
    return view;
  }

  /** The voters by which a server has an order decided. */
  votersOf(server: ServerId, cell: CellId): Pick<AskEvent, 'view' | 'members' | 'joint'> {
    const { number: view, members, joint } = this.of(server);
    const ofMembers = cellVoters(members, cell);
    return joint === undefined
      ? { view, members: ofMembers }
      : { view, members: ofMembers, joint: cellVoters(joint, cell) };
  }

  /** A server adopts the agreed view, and confirms it. */
  tell(server: ServerId, answered: () => void = () => this.#confirm(server)): void {
    const view = this.#agreed;
    this.#world.call(server, () => {
      if (view.number > this.of(server).number) {
        this.#disks.set(server, view);
        this.#servers.adopted(server, view);
      }
      answered();
    });
  }

  /** Checks once whether the change can continue. @returns whether there is a new view */
  step(wanted: VoterSet | null): boolean {
    const next = this.#change.next(this.#agreed, wanted, this.#world.nowMs);
    if (next === null) return false;
    this.counts[next.joint === undefined ? 'ended' : 'begun']++;
    this.#agreed = next;
    return true;
  }

  /** Changes voters at random until `untilMs`. */
  live(seed: number, untilMs: number): void {
    const dice = new Prng(seed * 2 + 2);
    const world = this.#world;
    const { ids } = world;
    const turn = (): void => {
      if (world.nowMs >= untilMs) return;
      if (dice.chance(0.01)) this.#change = new VotersChange(TIMING);
      for (const server of ids) {
        if (dice.chance(0.5)) continue;
        const answerMs = dice.next() * 50;
        world.at(world.nowMs + dice.next() * 50, () =>
          this.tell(server, () => {
            const standing = this.#servers.standing(server);
            const view = this.of(server);
            world.at(world.nowMs + answerMs, () => this.#count(server, view, standing));
          }),
        );
      }
      const servers = ids.filter(() => dice.chance(0.5));
      const wanted = dice.chance(0.2) ? { servers, perCell: dice.pick([3, 5]) } : null;
      this.step(wanted);
      world.at(world.nowMs + 20 + dice.next() * 80, turn);
    };
    turn();
  }

  /** Without faults: all servers adopt the agreed view. */
  settle(): void {
    for (const server of this.#world.ids) this.tell(server);
  }

  #confirm(server: ServerId): void {
    this.#count(server, this.of(server), this.#servers.standing(server));
  }

  #count(server: ServerId, view: VotersView, { silentMs, clockMs }: Standing): void {
    if (view.number === this.#agreed.number) this.#change.confirmed(server, view, clockMs, silentMs > 0);
  }
}

/** A change ends within this time without faults. */
export const CHANGE_MS_MAX = RECOVERY_MS + 2 * (LEASE_MS + 4 * CLOCK_SKEW_MAX_MS);

/** If a set has more servers than vote on one cell, the voters differ by cell. */
function cellVoters(set: VoterSet, cell: CellId): readonly ServerId[] {
  const { servers } = set;
  return Array.from(
    { length: votersCount(set) },
    (_, at) => servers[(cell + at) % servers.length] as ServerId,
  );
}
