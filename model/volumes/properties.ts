/** What must hold in every state; steps themselves say when a number is given out twice or a removed volume serves. */
import { agreed, newestOf, quorums } from './catalog-replicas.ts';
import { has, nameOf, type State } from './state.ts';

/** @returns what is wrong; null if nothing is */
export function violationOf(state: State): string | null {
  return leftAtRemoved(state) ?? twoOfOneName(state) ?? rangeOfTwo(state);
}

/** A removed server, unless removed as dead, has nothing of a volume that serves. */
function leftAtRemoved(state: State): string | null {
  for (const [server, { state: now }] of state.root.servers.entries()) {
    if (now !== 'out' || has(state.dead, server)) continue;
    for (const volume of state.replicas.keys()) {
      const newest = newestOf(state, volume);
      if (newest === null || newest.closed || !newest.created) continue;
      const all = newest.placed | newest.reserved | newest.members;
      if (has(all, server)) return `Volume ${volume} has something at ${nameOf(server)}, which is removed`;
    }
  }
  return null;
}

/** A client that cached the name may still use the earlier volume: two must never serve at once. */
function twoOfOneName(state: State): string | null {
  const serving = new Set<number>();
  for (const [volume, { name }] of state.root.rows.entries()) {
    if (!quorums(state, volume, { laggards: true }).some(({ newest }) => newest.created && !newest.closed))
      continue;
    if (serving.has(name)) return `Two volumes of the name ${name} serve`;
    serving.add(name);
  }
  return null;
}

/** Servers cache which volume a range belongs to, from any list: no two lists may differ in it. */
function rangeOfTwo({ root, servers }: State): string | null {
  const owners = new Map<number, number>();
  for (const list of [root, ...servers.map((server) => server.list)]) {
    for (const [volume, { ranges }] of (list?.rows ?? []).entries()) {
      for (const first of ranges) {
        if ((owners.get(first) ?? volume) !== volume) return `Range ${first} belongs to two volumes`;
        owners.set(first, volume);
      }
    }
  }
  return null;
}

/** Each volume is there or gone, as a whole: no creation, removal or move is half done. */
export function isResolved(state: State): boolean {
  return state.root.rows.every((row, volume) => {
    const replicas = state.replicas[volume] ?? [];
    if (row.state === 'removed') return replicas.every((replica) => replica === null);
    if (row.state !== 'ready') return false;
    const contents = agreed(state, volume, 'disk');
    if (contents === null || !contents.created || contents.closed || contents.view !== row.view) return false;
    return replicas.every((replica, server) => replica === null || has(contents.members, server));
  });
}
