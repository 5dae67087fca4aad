import { hash } from 'node:crypto';
import { LruMap } from '../../base/bounded-map.ts';
import { type CellId, type ServerId, serverIdCompare } from '../../base/ids.ts';
import type { VotersView } from '../../lease/voters.ts';

/** Number of the view that has the servers with which the cluster began. */
const FIRST_VIEW = 1;
/** Most servers that vote on one name by that view. */
const MEMBERS_FIRST = 3;
/** Names whose places are remembered: one request asks for them several times. */
const REMEMBERED_MAX = 1_000;

/** Where a name is negotiated. */
export interface LeasePlace {
  readonly cell: CellId;
  /** The servers that vote on it, in the order of their ids. */
  readonly members: readonly ServerId[];
  /** While the voters change: those to come, likewise. */
  readonly joint?: readonly ServerId[];
  /** Both, each once. */
  readonly voters: readonly ServerId[];
}

/** By which view servers vote on names that have always been the same ones. */
export function firstVoters(servers: readonly ServerId[]): VotersView {
  return { number: FIRST_VIEW, members: { servers, perCell: MEMBERS_FIRST }, clockMs: 0 };
}

/** The places of names by one view of the voters. */
export class LeasePlaces {
  readonly #view: VotersView;
  readonly #known = new LruMap<string, LeasePlace>(REMEMBERED_MAX);

  constructor(view: VotersView) {
    this.#view = view;
  }

  of(name: string): LeasePlace {
    let place = this.#known.get(name);
    if (place === undefined) {
      place = placeOf(name, this.#view);
      this.#known.set(name, place);
    }
    return place;
  }

  /**
   * A number of 32 bits that frames begin with: it stands for the set of servers of the configuration where that
   * decides who votes. Servers of earlier releases know no later views, and drop frames with another number.
   */
  get serversHash(): number {
    const { number, members } = this.#view;
    if (number !== FIRST_VIEW) return LATER_VIEWS_HASH;
    return hash53(members.servers.toSorted(serverIdCompare).join(',')) >>> 0;
  }
}

function placeOf(name: string, { members: set, joint: others }: VotersView): LeasePlace {
  const members = leaseMembers(name, set.servers, set.perCell);
  const place = { cell: leaseCell(name), members, voters: members };
  if (others === undefined) return place;
  const joint = leaseMembers(name, others.servers, others.perCell);
  return { ...place, joint, voters: [...new Set([...members, ...joint])].toSorted(serverIdCompare) };
}

/** @returns the number of the cell that a name is negotiated in; never 0, which stands for a server as a whole */
export function leaseCell(name: string): CellId {
  return (hash53(name) || 1) as CellId;
}

/**
 * The servers that vote on a name: those with the highest hash of name and server (rendezvous hashing). Every server
 * finds the same ones by itself, and a server that comes or goes moves only the names that it has or had.
 *
 * @param servers all that there are, in any order
 * @returns `countMax` of them, or all, in the order of their ids
 */
export function leaseMembers(
  name: string,
  servers: readonly ServerId[],
  countMax: number = MEMBERS_FIRST,
): ServerId[] {
  return servers
    .map((server) => ({ server, weight: hash53(`${server}\n${name}`) }))
    .toSorted((a, b) => b.weight - a.weight || serverIdCompare(a.server, b.server))
    .slice(0, countMax)
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

/** Of no list of servers. */
export const LATER_VIEWS_HASH = hash53('later views') >>> 0;
