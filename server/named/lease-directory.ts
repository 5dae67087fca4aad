import { ServiceError } from '../../base/errors.ts';
import type { ServerId } from '../../base/ids.ts';
import { parseJsonObject } from '../../wire/json.ts';
import { leaseNoteParse } from '../../wire/named-lease.ts';
import type { LeaseList, LeaseListEntry } from '../../wire/named-lease-api.ts';
import type { NamedLeaseDriver } from './named-lease-driver.ts';

/** Call between servers that returns the named leases that the called one knows. */
export const LEASES_CALL = 'named-leases';

/** A server that does not answer within this time is listed as unreachable. */
const ANSWER_MS_MAX = 1_000;
export const LIST_COUNT_MAX = 1_000;

export interface LeaseDirectoryParts {
  readonly self: ServerId;
  readonly namedLeases: NamedLeaseDriver;
  call(to: ServerId, method: string, payload: Uint8Array, timeoutMs: number): Promise<Uint8Array>;
}

interface Page {
  readonly leases: readonly LeaseListEntry[];
  readonly more: boolean;
}

/** Lists the named leases that the voters know of. It asks for no majority, so the list may be out of date. */
export class LeaseDirectory {
  readonly #parts: LeaseDirectoryParts;

  constructor(parts: LeaseDirectoryParts) {
    this.#parts = parts;
  }

  /** Lists the first `count` leases whose names begin with `prefix`, in the order of code units. */
  async list(prefix: string, count: number): Promise<LeaseList> {
    const { self, namedLeases } = this.#parts;
    const servers = namedLeases.voterServers;
    const pages = await Promise.all(
      servers.map(async (server) => ({
        server,
        page: server === self ? this.#listLocally(prefix, count) : await this.#ask(server, prefix, count),
      })),
    );
    const byName = new Map<string, LeaseListEntry>();
    let more = false;
    for (const { page } of pages) {
      more ||= page?.more ?? false;
      for (const entry of page?.leases ?? []) {
        const known = byName.get(entry.name);
        if (known === undefined || isNewer(entry, known)) byName.set(entry.name, entry);
      }
    }
    const leases = [...byName.values()].toSorted(byNameCompare);
    return {
      leases: leases.slice(0, count),
      more: more || leases.length > count,
      unreachable: pages.filter(({ page }) => page === null).map(({ server }) => server),
    };
  }

  /** Answers `LEASES_CALL` of a peer. @throws ServiceError `bad-request` */
  serve(payload: Uint8Array): Uint8Array {
    const request = parseJsonObject(Buffer.from(payload).toString('utf8'));
    const { prefix, count } = request ?? {};
    if (typeof prefix !== 'string' || typeof count !== 'number' || !(count >= 1 && count <= LIST_COUNT_MAX)) {
      throw new ServiceError('bad-request', 'A request for the list of named leases is malformed');
    }
    return Buffer.from(JSON.stringify(this.#listLocally(prefix, count)));
  }

  async #ask(server: ServerId, prefix: string, count: number): Promise<Page | null> {
    const request = Buffer.from(JSON.stringify({ prefix, count }));
    try {
      const answer = await this.#parts.call(server, LEASES_CALL, request, ANSWER_MS_MAX);
      return JSON.parse(Buffer.from(answer).toString('utf8')) as Page;
    } catch (error) {
      if (error instanceof ServiceError) return null;
      throw error;
    }
  }

  #listLocally(prefix: string, count: number): Page {
    const leases: LeaseListEntry[] = [];
    for (const claim of this.#parts.namedLeases.claims()) {
      const note = leaseNoteParse(claim.note);
      if (note === null || !note.name.startsWith(prefix)) continue;
      const { name, owner } = note;
      leases.push({ name, owner, token: claim.token, remainingMs: Math.round(claim.remainingMs) });
    }
    leases.sort(byNameCompare);
    return { leases: leases.slice(0, count), more: leases.length > count };
  }
}

function isNewer(a: LeaseListEntry, b: LeaseListEntry): boolean {
  return a.token > b.token || (a.token === b.token && a.remainingMs > b.remainingMs);
}

function byNameCompare(a: LeaseListEntry, b: LeaseListEntry): number {
  return a.name < b.name ? -1 : a.name > b.name ? 1 : 0;
}
