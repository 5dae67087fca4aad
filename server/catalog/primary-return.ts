import type { Logger } from 'pino';
import type { ServerId } from '../../base/ids.ts';
import type { Timer, World } from '../../base/world.ts';
import { maintenanceUntilMs } from '../../wire/maintenance.ts';
import type { ListedServer } from '../../wire/volume-catalogs.ts';
import type { ReplicaDriver } from '../drivers/replica-driver.ts';

/** For so many checks in a row, the first member must be fit to be primary. */
const STEADY_CHECKS = 4;
/** Each return of a catalog doubles that, so often: a server that fails again and again takes over less and less. */
const DOUBLINGS_MAX = 6;
/** After so many checks without a return, the next one needs as few as the first. */
const FORGET_CHECKS = 1024;
/** A backup that lags by less has what a load has just written. */
const BEHIND_MS_MAX = 1_000;

/** A catalog that has a replica here. */
export interface ReturnableCatalog {
  readonly volume: string;
  /** The replica here. */
  readonly driver: Pick<ReplicaDriver, 'isPrimary' | 'view' | 'peers' | 'futureMembers'>;
  /** Ends the epoch, and releases the lease. @returns the next primary, if there is one soon */
  handOver(): Promise<ServerId | null>;
}

export interface PrimaryReturnParts {
  readonly self: ServerId;
  readonly world: Pick<World, 'every'>;
  readonly log: Logger;
  /** Between two checks: the duration of a lease. */
  readonly periodMs: number;
  /** Of volumes, with replicas here. */
  catalogs(): Iterable<ReturnableCatalog>;
  servers(): readonly ListedServer[];
  /** Milliseconds since 1970. */
  wallMs(): number;
  isConnected(server: ServerId): boolean;
  /** Whether the other members let the server have the lease of a catalog. */
  mayLead(server: ServerId): boolean;
}

/** What is remembered of a catalog whose primary is here, though it has an earlier member. */
interface Course {
  /** The member that is to be primary, and for how many checks in a row it has been fit. */
  first: ServerId;
  checks: number;
  returns: number;
  sinceReturn: number;
}

/**
 * Spreads the primaries of volumes' catalogs again after failures: each returns to the first member that is reachable.
 * The order of the members says which that is, so servers need not agree on it, and of all members it requests a
 * released lease first (`LeaseDriver`). The lease decides: a server that is slower than others becomes no primary.
 */
export class PrimaryReturn {
  readonly #parts: PrimaryReturnParts;
  readonly #timer: Timer;
  readonly #courses = new Map<string, Course>();
  #underWay: Promise<void> | null = null;
  #closed = false;

  constructor(parts: PrimaryReturnParts) {
    this.#parts = parts;
    this.#timer = parts.world.every(parts.periodMs, () => this.#check());
  }

  /** Begins no more returns; resolves when none is under way. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#timer.cancel();
    await this.#underWay;
  }

  #check(): void {
    const due = [...this.#parts.catalogs()].filter((catalog) => this.#isDue(catalog));
    if (due.length === 0 || this.#underWay !== null) return;
    this.#underWay = this.#return(due).finally(() => {
      this.#underWay = null;
    });
  }

  /** One after the other: each interrupts its volume, and their clients, for a moment. */
  async #return(catalogs: readonly ReturnableCatalog[]): Promise<void> {
    for (const catalog of catalogs) {
      const course = this.#courses.get(catalog.volume);
      if (this.#closed) return;
      // Much may have changed during those before it.
      if (course === undefined || this.#firstOf(catalog) !== course.first) continue;
      const { volume } = catalog;
      const { first } = course;
      this.#parts.log.info({ volume, to: first }, 'returning the primary of a catalog');
      Object.assign(course, { checks: 0, returns: course.returns + 1, sinceReturn: 0 });
      // What keeps the first member from it is not known here: it may take long.
      if ((await catalog.handOver()) !== first) course.returns = DOUBLINGS_MAX;
    }
  }

  #isDue(catalog: ReturnableCatalog): boolean {
    const { volume } = catalog;
    const first = this.#firstOf(catalog);
    const known = this.#courses.get(volume);
    if (known !== undefined && ++known.sinceReturn > FORGET_CHECKS) this.#courses.delete(volume);
    if (first === null) {
      if (known !== undefined) known.checks = 0;
      return false;
    }
    const course = this.#courses.get(volume) ?? { first, checks: 0, returns: 0, sinceReturn: 0 };
    this.#courses.set(volume, course);
    course.checks = course.first === first ? course.checks + 1 : 1;
    course.first = first;
    return course.checks > STEADY_CHECKS * 2 ** Math.min(course.returns, DOUBLINGS_MAX);
  }

  /** @returns the member to which the primary here should return; null if it is not here, is to stay, or must wait */
  #firstOf({ driver }: ReturnableCatalog): ServerId | null {
    const { self, isConnected, mayLead } = this.#parts;
    const { members, joint } = driver.view;
    if (!driver.isPrimary || joint !== undefined) return null;
    // New members may still be fetching the catalog.
    if (!driver.futureMembers.every((member) => members.includes(member))) return null;
    const first = members.find((member) => member === self || isConnected(member));
    if (first === undefined || first === self || !mayLead(first) || !this.#stays(first)) return null;
    const peer = driver.peers(isConnected).find(({ server }) => server === first);
    const isFit = peer !== undefined && peer.state !== 'unreachable' && peer.behindMs < BEHIND_MS_MAX;
    return isFit ? first : null;
  }

  /** Whether the server is neither to leave nor about to be stopped. */
  #stays(server: ServerId): boolean {
    const listed = this.#parts.servers().find(({ id }) => id === server);
    return listed?.state === 'in' && (maintenanceUntilMs(listed) ?? -Infinity) < this.#parts.wallMs();
  }
}
