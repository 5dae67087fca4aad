/** Replicas of a volume's catalog: which of them can execute a command together, and what a majority has on disk. */
import {
  type Configuration,
  type Contents,
  has,
  isMajority,
  losesPower,
  type Replica,
  replaced,
  type Servers,
  type State,
  sizeOf,
} from './state.ts';

/** Servers that act together: a majority of the newest view that any of them has. */
export interface Quorum {
  readonly servers: Servers;
  readonly newest: Contents;
}

export function contentsCompare(a: Contents, b: Contents): number {
  return a.epoch - b.epoch || a.seq - b.seq;
}

function newestAmong(replicas: readonly (Replica | null)[], servers: Servers): Contents | null {
  let newest: Contents | null = null;
  for (const [server, replica] of replicas.entries()) {
    if (replica === null || replica.trust === 'lost' || !has(servers, server)) continue;
    if (newest === null || contentsCompare(replica.now, newest) > 0) newest = replica.now;
  }
  return newest;
}

const ALL: Servers = ~0;

/** What the replicas together know, also those without a majority. */
export function newestOf({ replicas }: State, volume: number): Contents | null {
  return newestAmong(replicas[volume] ?? [], ALL);
}

/** Servers whose replica votes. */
function voters(replicas: readonly (Replica | null)[]): Servers {
  let set = 0;
  for (const [server, replica] of replicas.entries()) if (replica?.trust === 'intact') set |= 1 << server;
  return set;
}

/** Smallest majorities; without laggards, the largest alone. */
export function quorums(
  { replicas }: State,
  volume: number,
  { laggards }: Pick<Configuration, 'laggards'>,
): Quorum[] {
  const row = replicas[volume] ?? [];
  const intact = voters(row);
  const found: Quorum[] = [];
  for (let servers = 1; servers <= intact; servers++) {
    if ((servers & intact) !== servers) continue;
    const newest = newestAmong(row, servers);
    if (newest === null || (servers & newest.members) !== servers) continue;
    if (!isMajority(servers, newest.members)) continue;
    const isSmallest = sizeOf(servers) === Math.floor(sizeOf(newest.members) / 2) + 1;
    if (laggards ? isSmallest : servers === (intact & newest.members)) found.push({ servers, newest });
  }
  return found;
}

/** @returns the state after a quorum has executed a command */
export function executed(
  state: State,
  volume: number,
  { servers, newest }: Quorum,
  change: Partial<Contents>,
): State {
  const { epoch, seq } = newest;
  const position = epoch === state.rootEpoch ? { epoch, seq: seq + 1 } : { epoch: state.rootEpoch, seq: 1 };
  return withContents(state, volume, servers, { ...newest, ...position, ...change });
}

/** @returns the state in which `servers` have these contents, durably if no power can be lost */
export function withContents(state: State, volume: number, servers: Servers, contents: Contents): State {
  const row = (state.replicas[volume] ?? []).map((replica, server): Replica | null => {
    if (!has(servers, server)) return replica;
    const disk = losesPower(state) ? (replica?.disk ?? { ...contents, epoch: 0, seq: 0, view: 0 }) : contents;
    return { trust: 'intact', now: contents, disk };
  });
  return { ...state, replicas: replaced(state.replicas, volume, row) };
}

/** A flush of a quorum: its newest contents are on the disks of all of it. */
export function flushed(state: State, volume: number, { servers, newest }: Quorum): State {
  const row = (state.replicas[volume] ?? []).map((replica, server): Replica | null =>
    has(servers, server) ? { trust: 'intact', now: newest, disk: newest } : replica,
  );
  return { ...state, replicas: replaced(state.replicas, volume, row) };
}

/** The newest contents that a majority of their members has, on disk or in memory. */
export function agreed(state: State, volume: number, where: 'disk' | 'now'): Contents | null {
  const row = state.replicas[volume] ?? [];
  let newest: Contents | null = null;
  for (const replica of row) {
    if (replica === null || replica.trust === 'lost') continue;
    const contents = replica[where];
    let have = 0;
    for (const [server, other] of row.entries()) {
      if (other?.trust === 'intact' && contentsCompare(other[where], contents) >= 0) have |= 1 << server;
    }
    if (!isMajority(have, contents.members)) continue;
    if (newest === null || contentsCompare(contents, newest) > 0) newest = contents;
  }
  return newest;
}
