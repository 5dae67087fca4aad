import { hash } from 'node:crypto';
import { type CellId, type ServerId, serverIdCompare } from '../../base/ids.ts';
import { recentlyUsed } from '../recently-used.ts';

/** Most servers that vote on one name. */
const MEMBERS_MAX = 3;
/** Names whose places are remembered: one request asks for them several times. */
const REMEMBERED_MAX = 1_000;

/** Where a name is negotiated. */
export interface LeasePlace {
  readonly cell: CellId;
  /** The servers that vote on it, in the order of their ids. */
  readonly members: readonly ServerId[];
}

/** The places of names among the servers of one configuration. */
export class LeasePlaces {
  readonly #servers: readonly ServerId[];
  readonly #known = recentlyUsed<string, LeasePlace>(REMEMBERED_MAX);

  /** @param servers all servers of the configuration, in any order */
  constructor(servers: readonly ServerId[]) {
    this.#servers = servers;
  }

  of(name: string): LeasePlace {
    let place = this.#known.get(name);
    if (place === undefined) {
      place = { cell: leaseCell(name), members: leaseMembers(name, this.#servers) };
      this.#known.set(name, place);
    }
    return place;
  }

  /** A number of 32 bits that stands for the set of servers. */
  get serversHash(): number {
    return hash53(this.#servers.toSorted(serverIdCompare).join(',')) >>> 0;
  }
}

/** @returns the number of the cell that a name is negotiated in; never 0, which stands for a server as a whole */
export function leaseCell(name: string): CellId {
  return (hash53(name) || 1) as CellId;
}

/**
 * The servers that vote on a name: those with the highest hash of name and server (rendezvous hashing). Every server
 * finds the same ones by itself, and a server that comes or goes moves only the names that it has or had.
 *
 * @param servers all servers of the configuration, in any order
 * @returns three of them, or all there are, in the order of their ids
 */
export function leaseMembers(name: string, servers: readonly ServerId[]): ServerId[] {
  return servers
    .map((server) => ({ server, weight: hash53(`${server}\n${name}`) }))
    .toSorted((a, b) => b.weight - a.weight || serverIdCompare(a.server, b.server))
    .slice(0, MEMBERS_MAX)
    .map(({ server }) => server)
    .toSorted(serverIdCompare);
}

/**
 * The first 53 bits of SHA-256, as many as a number holds. To find a text with the hash of a given one takes about
 * 2^53 tries, so that nobody gets into another's cell; any two texts with one hash take some 2^27 and can be had.
 */
function hash53(text: string): number {
  const digest = hash('sha256', text, 'buffer');
  return digest.readUInt32BE(0) * 0x20_0000 + (digest.readUInt32BE(4) >>> 11);
}
