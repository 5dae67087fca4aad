import { ServiceError } from '../../base/errors.ts';
import type { World } from '../../base/world.ts';
import type { Access } from './access.ts';
import { Endpoint, type EndpointEvents } from './endpoint.ts';
import { SearchSchedule } from './search-schedule.ts';
import { askId, findServers } from './server-search.ts';
import { ZonePolicy } from './zone-policy.ts';

const IDS_PERIOD_MS = 1_000;

/** The servers of a cluster, and the choice of the one to ask next. */
export class Endpoints {
  readonly world: World;
  readonly zone: ZonePolicy;
  readonly #access: Access;
  readonly #all: Endpoint[];
  readonly #byId = new Map<string, Endpoint>();
  readonly #retiring = new Set<Endpoint>();
  readonly #closing = new AbortController();
  readonly #searches: SearchSchedule;
  readonly #events: EndpointEvents = {
    unreachable: () => this.#searches.requestSoon(),
    hasAlternative: (endpoint) => {
      const nowMs = this.world.nowMs();
      return this.#all.some((other) => other !== endpoint && other.isUsable(nowMs));
    },
  };
  /** The server that answered last; asked first if no primary is known. */
  #preferred: Endpoint;
  #idsAtMs = Number.NEGATIVE_INFINITY;

  constructor(world: World, urls: readonly string[], access: Access, zone: string | null = null) {
    this.world = world;
    this.zone = new ZonePolicy(world, zone, (id) => this.isIdUsable(id, world.nowMs()));
    this.#searches = new SearchSchedule(world, () => this.#search());
    this.#access = access;
    const unique = [...new Set(urls.map((url) => url.replace(/\/+$/, '')))];
    this.#all = unique.map((url) => new Endpoint(world, url, true, this.#events, access));
    const [first] = this.#all;
    if (first === undefined) {
      throw new ServiceError('bad-request', 'Cannot connect to a cluster: no server is given');
    }
    this.#preferred = first;
    // The list of servers has their zones; until it is known, requests go as without a zone.
    if (zone !== null) this.#searches.request();
  }

  /** The given ones in their order, then those that were discovered. */
  get all(): readonly Endpoint[] {
    return this.#all;
  }

  /** @returns the primary, if usable and not `last` (asked in the attempt before), else the next usable after `last` */
  choose(primary: string | null, last: Endpoint | null, nowMs: number): Endpoint {
    if (primary !== null) {
      const wanted = this.#byId.get(primary);
      if (wanted === undefined) this.#learnIds(nowMs);
      else if (wanted !== last && wanted.isUsable(nowMs)) return wanted;
    }
    const count = this.#all.length;
    // A server that has left the list counts as the one before the first.
    const start = last === null ? this.#all.indexOf(this.#preferred) : this.#all.indexOf(last) + 1;
    for (let step = 0; step < count; step++) {
      const candidate = this.#all[(start + step) % count] as Endpoint;
      if (candidate.isUsable(nowMs)) return candidate;
    }
    // No server seems usable: try all in order, since that may be out of date.
    return this.#all[start % count] as Endpoint;
  }

  /** A server for requests that any one answers: clients with different numbers spread over the given servers. */
  near(place: number): Endpoint | null {
    const nowMs = this.world.nowMs();
    const usable = this.#all.filter((endpoint) => endpoint.given && endpoint.isUsable(nowMs));
    return usable[place % usable.length] ?? null;
  }

  isIdUsable(id: string, nowMs: number): boolean {
    return this.#byId.get(id)?.isUsable(nowMs) ?? false;
  }

  usableById(id: string, nowMs: number): Endpoint | null {
    const endpoint = this.#byId.get(id);
    return endpoint?.isUsable(nowMs) === true ? endpoint : null;
  }

  prefer(endpoint: Endpoint): void {
    if (this.#all.includes(endpoint)) this.#preferred = endpoint;
  }

  allDead(): boolean {
    return this.#all.every((endpoint) => endpoint.isDead);
  }

  allUnreachable(): boolean {
    return this.#all.every((endpoint) => endpoint.isUnreachable);
  }

  unreachableNames(): string[] {
    return this.#all
      .filter((endpoint) => endpoint.isUnreachable)
      .map((endpoint) => endpoint.id ?? endpoint.url);
  }

  /** Asks the servers for their ids, in the background; if all are known, searches for further servers. */
  #learnIds(nowMs: number): void {
    if (nowMs - this.#idsAtMs < IDS_PERIOD_MS) return;
    this.#idsAtMs = nowMs;
    // `isUsable` probes an unreachable one: the primary that is looked for may be it.
    const unknown = this.#all.filter(
      (endpoint) => endpoint.id === null && (endpoint.isUsable(nowMs) || !endpoint.isUnreachable),
    );
    if (unknown.length === 0) this.#searches.request();
    for (const endpoint of unknown) void this.#learnId(endpoint);
  }

  async #learnId(endpoint: Endpoint): Promise<void> {
    // The id only saves forwarding, so a failure is no error: it is asked for again later.
    const id = await askId(endpoint, this.#closing.signal);
    if (id === null || !this.#all.includes(endpoint)) return;
    endpoint.id = id;
    this.#byId.set(id, endpoint);
  }

  /** Searches for servers that joined or left the cluster. @returns whether the list has changed */
  async #search(): Promise<boolean> {
    const { signal } = this.#closing;
    await Promise.all(
      this.#all
        .filter(({ id, isUnreachable }) => id === null && !isUnreachable)
        .map((one) => this.#learnId(one)),
    );
    const found = await findServers(this.#all, this.#preferred, this.#events, signal, this.#access);
    if (signal.aborted) {
      await Promise.all(found.joined.map((endpoint) => endpoint.close()));
      return false;
    }
    for (const endpoint of found.joined) {
      this.#all.push(endpoint);
      if (endpoint.id !== null) this.#byId.set(endpoint.id, endpoint);
    }
    for (const endpoint of found.left) this.#retire(endpoint);
    if (found.listed !== null) this.zone.learn(found.listed);
    if (found.unproven) this.#searches.request();
    return found.joined.length + found.left.length > 0;
  }

  #retire(endpoint: Endpoint): void {
    const index = this.#all.indexOf(endpoint);
    if (index >= 0) this.#all.splice(index, 1);
    if (endpoint.id !== null && this.#byId.get(endpoint.id) === endpoint) {
      // The same server may be reachable at the address that was given for it.
      const other = this.#all.find(({ id }) => id === endpoint.id);
      if (other === undefined) this.#byId.delete(endpoint.id);
      else this.#byId.set(endpoint.id, other);
    }
    if (this.#preferred === endpoint) this.#preferred = this.#all[0] as Endpoint;
    this.#retiring.add(endpoint);
    void endpoint.retire().finally(() => this.#retiring.delete(endpoint));
  }

  async close(): Promise<void> {
    this.#searches.close();
    this.#closing.abort();
    await Promise.all([...this.#all, ...this.#retiring].map((endpoint) => endpoint.close()));
  }
}
