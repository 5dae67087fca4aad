import { hash } from 'node:crypto';
import { LruMap } from '../../base/bounded-map.ts';
import { type CellId, type ServerId, serverIdCompare } from '../../base/ids.ts';
import { isVotersView, type VotersView } from '../../lease/voters.ts';
import { MalformedError } from '../../wire/bytes.ts';

/** Number of the view of the servers with which the cluster began. */
const FIRST_VIEW = 1;
/** Most voters of one name in that view. */
const MEMBERS_FIRST = 3;
/** Names whose voters are cached: one request needs them several times. */
const CACHED_MAX = 1_000;

/** The cell of a name, and its voters. */
export interface NameVoters {
  readonly cell: CellId;
  /** In the order of their ids. */
  readonly members: readonly ServerId[];
  /** The next voters while they change, in the same order. */
  readonly joint?: readonly ServerId[];
  readonly voters: readonly ServerId[];
}

/** Returns the view of a cluster whose voters have never changed. */
export function firstVoters(servers: readonly ServerId[]): VotersView {
  return { number: FIRST_VIEW, members: { servers, perCell: MEMBERS_FIRST }, clockMs: 0 };
}

/**
 * Returns the view of voters that the catalog has stored; null stands for a cluster whose voters have never changed.
 * @throws MalformedError
 */
export function storedVoters(view: unknown, founders: readonly ServerId[]): VotersView {
  if (view === null) return firstVoters(founders);
  if (!isVotersView(view)) throw new MalformedError('The catalog contains an invalid view of voters');
  return view;
}

export class NameVotersByView {
  readonly #view: VotersView;
  readonly #known = new LruMap<string, NameVoters>(CACHED_MAX);

  constructor(view: VotersView) {
    this.#view = view;
  }

  of(name: string): NameVoters {
    let voters = this.#known.get(name);
    if (voters === undefined) {
      voters = votersOf(name, this.#view);
      this.#known.set(name, voters);
    }
    return voters;
  }

  /**
   * The 32 bits that begin each frame: in the first view a hash of the configuration's servers, who vote then. Earlier
   * releases know no later views, and drop frames with another number.
   */
  get serversHash(): number {
    const { number, members } = this.#view;
    if (number !== FIRST_VIEW) return LATER_VIEWS_HASH;
    return hash53(members.servers.toSorted(serverIdCompare).join(',')) >>> 0;
  }
}

function votersOf(name: string, { members: set, joint: others }: VotersView): NameVoters {
  const members = leaseMembers(name, set.servers, set.perCell);
  const place = { cell: leaseCell(name), members, voters: members };
  if (others === undefined) return place;
  const joint = leaseMembers(name, others.servers, others.perCell);
  return { ...place, joint, voters: [...new Set([...members, ...joint])].toSorted(serverIdCompare) };
}

/** Returns the cell of a name; never 0, which stands for a whole server. */
export function leaseCell(name: string): CellId {
  return (hash53(name) || 1) as CellId;
}

/**
 * Returns the `countMax` servers with the highest hash of name and server (rendezvous hashing), in the order of ids.
 * Every server computes the same set, and a server that is added or removed moves only its own names.
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
 * The first 53 bits of SHA-256, as many as a number holds. Finding a name with the cell of a given name takes about
 * 2^53 tries, so that no client can block another one's lease; finding any two names with one cell takes about 2^27.
 */
function hash53(text: string): number {
  const digest = hash('sha256', text, 'buffer');
  return digest.readUInt32BE(0) * 0x20_0000 + (digest.readUInt32BE(4) >>> 11);
}

/** Stands for all later views: it is not the hash of a list of servers. */
export const LATER_VIEWS_HASH = hash53('later views') >>> 0;
