import type { Logger } from 'pino';
import type { ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import { VOTERS_VERSION } from '../../catalog/versions.ts';
import type { LeaseTiming } from '../../lease/parameters.ts';
import {
  isVotersView,
  type VoterSet,
  VotersChange,
  type VotersView,
  votersAll,
  votersCount,
  votersViewsEqual,
} from '../../lease/voters.ts';
import { MalformedError } from '../../wire/bytes.ts';
import type { CommandOf, QueryResults } from '../../wire/catalog-api.ts';
import { parseJsonObject } from '../../wire/json.ts';
import { firstVoters, storedVoters } from '../named/name-voters.ts';
import type { NamedLeaseDriver } from '../named/named-lease-driver.ts';
import { Rounds } from '../process/rounds.ts';
import type { ServerCondition } from './wanted-members.ts';

export const VOTERS_CALL = 'voters';
const PERIOD_MS = 1_000;
const CALL_MS = 2_000;
/** Most servers that vote on one name, once the voters are the catalog's members. */
const VOTERS_PER_NAME = 5;
/**
 * With this many founders, leases survive the failure of one: the founders stay the voters while none leaves, and the
 * catalog is on no more servers.
 */
const FOUNDERS_ENOUGH = 3;

export interface VotersKeeperParts {
  readonly self: ServerId;
  readonly world: World;
  readonly log: Logger;
  readonly timing: LeaseTiming;
  readonly founders: readonly ServerId[];
  readonly driver: Pick<NamedLeaseDriver, 'voters' | 'adoptVoters' | 'isSilent' | 'clockMs'>;
  readonly periodMs?: number;
  isCatalogPrimary(): boolean;
  /** Null during a change. */
  catalogMembers(): readonly ServerId[] | null;
  conditions(): Promise<readonly ServerCondition[]>;
  /** The view of voters that the catalog has, read after the call. */
  query(): Promise<QueryResults['voters']>;
  command(command: CommandOf<'set-voters'>): Promise<unknown>;
  flush(): Promise<void>;
  /** Null while the server is disconnected. */
  commandsVersion(server: ServerId): number | null;
  call(to: ServerId, method: string, payload: Uint8Array, timeoutMs: number): Promise<Uint8Array>;
}

/**
 * Keeps the voters on named leases the same servers as the catalog's members. It runs at the catalog's primary. The
 * catalog numbers the views; each server has its view on disk; `VotersChange` decides when the next step is safe.
 */
export class VotersKeeper {
  readonly #parts: VotersKeeperParts;
  readonly #rounds: Rounds;
  #change: VotersChange | null = null;
  /** Number of the view that is known to be durable. */
  #durable = 0;
  /** Number of the view that each server has confirmed since it last connected. */
  readonly #confirmed = new Map<ServerId, number>();
  readonly #withUnknownView = new Set<ServerId>();
  #wantedCount: number | null = null;

  constructor(parts: VotersKeeperParts) {
    this.#parts = parts;
    this.#rounds = new Rounds({
      world: parts.world,
      periodMs: parts.periodMs ?? PERIOD_MS,
      work: () => (parts.isCatalogPrimary() ? this.#keep() : this.#follow()),
      // Mostly an election of the catalog's primary: the next round tries again.
      failed: (error) =>
        parts.log.debug({ err: error }, 'cannot check the voters of named leases; trying again'),
    });
  }

  close(): void {
    this.#rounds.close();
  }

  /** How many servers are to vote on one name; null if this server is not the catalog's primary. */
  get wantedCount(): number | null {
    return this.#wantedCount;
  }

  connected(peer: ServerId): void {
    this.#confirmed.delete(peer);
  }

  runRound(): Promise<void> {
    return this.#rounds.run();
  }

  /**
   * Answers `VOTERS_CALL`. A server with a new data folder does not adopt the view from this message, which may be old:
   * the server may have voted by a later view with its earlier folder. It queries the catalog instead.
   * @throws MalformedError
   */
  serve(payload: Uint8Array): Uint8Array {
    const { driver } = this.#parts;
    const view = parseJsonObject(Buffer.from(payload).toString('utf8'));
    if (!isVotersView(view)) throw new MalformedError('A view of voters lacks fields');
    if (driver.voters !== null) driver.adoptVoters(view);
    const { voters, isSilent } = driver;
    return Buffer.from(JSON.stringify({ voters, isSilent, clockMs: driver.clockMs() }));
  }

  async #follow(): Promise<void> {
    this.#change = null;
    this.#wantedCount = null;
    this.#confirmed.clear();
    const { driver } = this.#parts;
    if (driver.voters === null) driver.adoptVoters(await this.#durableView());
  }

  async #keep(): Promise<void> {
    const { timing, driver, self, log } = this.#parts;
    this.#change ??= new VotersChange(timing);
    const change = this.#change;
    const view = await this.#durableView();
    driver.adoptVoters(view);
    if (driver.voters !== null)
      this.#noteAnswer(change, view, self, driver.voters, driver.isSilent, driver.clockMs());
    const conditions = await this.#parts.conditions();
    await this.#send(change, view, conditions);
    const wanted = this.#wanted(view, conditions);
    if (wanted !== 'unknown') this.#wantedCount = votersCount(wanted ?? view.members);
    const next = change.next(view, wanted === 'unknown' ? null : wanted, this.#parts.world.nowMs());
    if (next === null || this.#change !== change) return;
    await this.#parts.command({ kind: 'set-voters', view: votersCommand(next) });
    log.info({ view: next.number, voters: votersAll(next) }, 'the voters of named leases change');
  }

  /** Returns the catalog's view of voters after a flush: a server may adopt only what no loss of power takes back. */
  async #durableView(): Promise<VotersView> {
    const { founders, query, flush } = this.#parts;
    const stored = (await query()).view;
    const view = storedVoters(stored, founders);
    if (stored === null) return view;
    if (view.number !== this.#durable) await flush();
    this.#durable = view.number;
    return view;
  }

  /** Sends the view to servers that have not confirmed it; while voters change, to all, to learn which are silent. */
  async #send(change: VotersChange, view: VotersView, conditions: readonly ServerCondition[]): Promise<void> {
    const { self, call, log } = this.#parts;
    const payload = Buffer.from(JSON.stringify(view));
    const servers = new Set([...conditions.map(({ id }) => id), ...votersAll(view)]);
    const uninformed = [...servers].filter((server) => {
      const isInformed = view.joint === undefined && this.#confirmed.get(server) === view.number;
      return server !== self && !isInformed && this.#knowsViews(server);
    });
    await Promise.all(
      uninformed.map(async (server) => {
        try {
          const answer = await call(server, VOTERS_CALL, payload, CALL_MS);
          const fields = parseJsonObject(Buffer.from(answer).toString('utf8')) ?? {};
          const { voters, isSilent, clockMs } = fields;
          if (!isVotersView(voters) || typeof clockMs !== 'number') return;
          this.#noteAnswer(change, view, server, voters, isSilent !== false, clockMs);
        } catch (error) {
          log.debug({ server, err: error }, 'cannot send the voters of named leases to a server yet');
        }
      }),
    );
  }

  #noteAnswer(
    change: VotersChange,
    view: VotersView,
    server: ServerId,
    voters: VotersView,
    isSilent: boolean,
    clockMs: number,
  ): void {
    if (votersViewsEqual(voters, view)) {
      this.#confirmed.set(server, view.number);
      change.confirmed(server, view, clockMs, isSilent);
    } else if (voters.number >= view.number && !this.#withUnknownView.has(server)) {
      this.#withUnknownView.add(server);
      const what = 'a server uses a view of voters that the catalog does not have';
      this.#parts.log.error({ server, view, voters }, what);
    }
  }

  /** The wanted voters; null: those of the view; `unknown`: no change may begin now. */
  #wanted(view: VotersView, conditions: readonly ServerCondition[]): VoterSet | 'unknown' | null {
    const { founders, catalogMembers } = this.#parts;
    const present = conditions.filter(({ state, toBeReplaced }) => state !== 'out' && !toBeReplaced);
    if (!present.every(({ id }) => this.#knowsViews(id))) return 'unknown';
    const members = catalogMembers();
    if (members === null) return 'unknown';
    const leaving = new Set(
      conditions.filter(({ state, toBeReplaced }) => state !== 'in' || toBeReplaced).map(({ id }) => id),
    );
    const isFirst = view.number === firstVoters(founders).number;
    const enough = Math.max(FOUNDERS_ENOUGH, members.length);
    const areEnough = founders.length >= enough && !founders.some((server) => leaving.has(server));
    if (isFirst && areEnough) return null;
    return { servers: members.toSorted(), perCell: VOTERS_PER_NAME };
  }

  #knowsViews(server: ServerId): boolean {
    const { self, commandsVersion } = this.#parts;
    return server === self || (commandsVersion(server) ?? 0) >= VOTERS_VERSION;
  }
}

function votersCommand({ number, members, joint, clockMs }: VotersView): CommandOf<'set-voters'>['view'] {
  const set = ({ servers, perCell }: VoterSet) => ({ servers: [...servers], perCell });
  return { number, members: set(members), ...(joint === undefined ? {} : { joint: set(joint) }), clockMs };
}
