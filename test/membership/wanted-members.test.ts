import { join } from 'node:path';
import type { ServerId } from '../../base/ids.ts';
import {
  chooseRebalance,
  rebalancedMembers,
  type ServerCondition,
  wantedMembers,
} from '../../server/membership/wanted-members.ts';
import type { ServerState } from '../../wire/catalog-api.ts';
import { type Handler, playConversations } from '../data-driven.ts';

const MIB = 2 ** 20;

/**
 * `servers a b/z c:20%` are members, reachable, half free unless said; `/z` is the zone. `draining a`, `out a`,
 * `away a`, `gone a`, `well a` change them. `file a b c wants 3` answers the members, `-` if they stay.
 */
function start(): Handler {
  const servers = new Map<string, ServerCondition>();
  const change = (ids: readonly string[], what: Partial<ServerCondition>): string => {
    for (const id of ids) servers.set(id, { ...(servers.get(id) as ServerCondition), ...what });
    return '';
  };
  const state = (ids: readonly string[], to: ServerState) => change(ids, { state: to });
  const run = ([word, ...rest]: readonly string[]): string => {
    switch (word) {
      case 'servers':
        for (const text of rest) {
          const [, id = '', zone = '', free = '50'] = /^(\w+)(?:\/(\w+))?(?::(\d+)%)?$/.exec(text) ?? [];
          const room = { freeBytes: Number(free) * MIB, totalBytes: 100 * MIB };
          const well = { reachable: true, registered: true, state: 'in', toBeReplaced: false } as const;
          servers.set(id, { id: id as ServerId, zone, ...room, ...well });
        }
        return '';
      case 'draining':
        return state(rest, 'draining');
      case 'out':
        return state(rest, 'out');
      case 'away':
        return change(rest, { reachable: false });
      case 'gone':
        return change(rest, { reachable: false, toBeReplaced: true });
      case 'well':
        return change(rest, { reachable: true, toBeReplaced: false, state: 'in' });
      case 'file': {
        const at = rest.indexOf('wants');
        const file = { inode: 7, members: rest.slice(0, at) as ServerId[] };
        const wanted = wantedMembers(file, [...servers.values()], Number(rest[at + 1]));
        const again = wantedMembers(
          { ...file, members: wanted },
          [...servers.values()],
          Number(rest[at + 1]),
        );
        const settled = again.join(' ') === wanted.join(' ') ? '' : ` and then ${again.join(' ')}`;
        return (wanted.join(' ') === file.members.join(' ') ? '-' : wanted.join(' ')) + settled;
      }
      case 'rebalance': {
        const move = chooseRebalance([...servers.values()], Number(rest[0]) / 100);
        if (move === null) return '-';
        const files = rest.slice(1).map((text) => {
          const file = { inode: 7, members: text.split(',') as ServerId[] };
          return `${text}: ${rebalancedMembers(file, [...servers.values()], move)?.join(',') ?? '-'}`;
        });
        const head = `${move.from} to ${move.to}, ${move.bytesMax / MIB} MiB at the most`;
        return [head, ...files].join('\n');
      }
      default:
        throw new Error(`Unknown word ${word}`);
    }
  };
  return (commands) =>
    commands
      .map(run)
      .filter((line) => line !== '')
      .join('\n');
}

playConversations(join(import.meta.dirname, '../testdata/membership'), start);
