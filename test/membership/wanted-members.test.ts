import { join } from 'node:path';
import type { ServerId } from '../../base/ids.ts';
import { type CountedServer, chooseRebalances, rebalancedMembers } from '../../server/membership/balance.ts';
import {
  type FileMembers,
  type ServerCondition,
  spreadMembers,
  wantedMembers,
} from '../../server/membership/wanted-members.ts';
import type { ServerState } from '../../wire/catalog-api.ts';
import type { PlacementClass } from '../../wire/placement-class.ts';
import { type Handler, playConversations } from '../data-driven.ts';

const MIB = 2 ** 20;

/**
 * `servers a b/z c:20%` are members, reachable, half free unless said; `/z` is the zone. `draining a`, `out a`, `away
 * a`, `gone a`, `well a` change them, `new a`: not reachable for long. `a=300` has 300 files; `none` removes all.
 * `label a ssd` gives a server a label; `class ssd` restricts the volume, and with it the files from then on to servers
 * with the label, `class` ends that. `file a b c wants 3` answers the members, `-` if they stay; `spread a b c` those
 * that are spread over zones.
 */
function start(): Handler {
  const servers = new Map<string, CountedServer>();
  let required: PlacementClass = {};
  const change = (ids: readonly string[], what: Partial<ServerCondition>): string => {
    for (const id of ids) servers.set(id, { ...(servers.get(id) as CountedServer), ...what });
    return '';
  };
  const state = (ids: readonly string[], to: ServerState) => change(ids, { state: to });
  const run = ([word, ...rest]: readonly string[]): string => {
    switch (word) {
      case 'servers':
        for (const text of rest) {
          const [, id = '', zone = '', free = '50', files = '0'] =
            /^(\w+)(?:\/(\w+))?(?::(\d+)%)?(?:=(\d+))?$/.exec(text) ?? [];
          const room = { freeBytes: Number(free) * MIB, totalBytes: 100 * MIB };
          const well = { reachable: true, registered: true, state: 'in', toBeReplaced: false } as const;
          const counted = { files: Number(files), isSteady: true };
          servers.set(id, { id: id as ServerId, zone, ...room, ...well, ...counted });
        }
        return '';
      case 'none':
        servers.clear();
        required = {};
        return '';
      case 'label':
        return change(rest.slice(0, 1), { labels: rest.slice(1) });
      case 'class':
        required = { labels: rest };
        return '';
      case 'draining':
        return state(rest, 'draining');
      case 'out':
        return state(rest, 'out');
      case 'away':
        return change(rest, { reachable: false });
      case 'new':
        return change(rest, { isSteady: false });
      case 'gone':
        return change(rest, { reachable: false, toBeReplaced: true });
      case 'well':
        return change(rest, { reachable: true, toBeReplaced: false, state: 'in', isSteady: true });
      case 'file': {
        const at = rest.indexOf('wants');
        const file = { inode: 7, members: rest.slice(0, at) as ServerId[], class: required };
        const wanted = wantedMembers(file, [...servers.values()], Number(rest[at + 1]));
        const again = wantedMembers(
          { ...file, members: wanted },
          [...servers.values()],
          Number(rest[at + 1]),
        );
        const settled = again.join(' ') === wanted.join(' ') ? '' : ` and then ${again.join(' ')}`;
        return (wanted.join(' ') === file.members.join(' ') ? '-' : wanted.join(' ')) + settled;
      }
      case 'spread':
        return spreadText({ inode: 7, members: rest as ServerId[], class: required }, [...servers.values()]);
      case 'rebalance': {
        const moves = chooseRebalances([...servers.values()], [required]);
        if (moves.length === 0) return '-';
        const lines = moves.map(({ from, to, filesMax, bytesMax }) => {
          const files = Number.isFinite(filesMax) ? `${filesMax} files, ` : '';
          return `${from} to ${to}, ${files}${bytesMax / MIB} MiB at the most`;
        });
        const [move] = moves;
        const files = rest.map((text) => {
          const file = { inode: 7, members: text.split(',') as ServerId[], class: required };
          const members = move === undefined ? null : rebalancedMembers(file, [...servers.values()], move);
          return `${text}: ${members?.join(',') ?? '-'}`;
        });
        return [...lines, ...files].join('\n');
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

function spreadText(file: FileMembers, servers: readonly ServerCondition[]): string {
  const spread = spreadMembers(file, servers);
  if (spread === null) return '-';
  const again = spreadMembers({ ...file, members: spread }, servers);
  return spread.join(' ') + (again === null ? '' : ` and then ${again.join(' ')}`);
}

playConversations(join(import.meta.dirname, '../testdata/membership'), start);
