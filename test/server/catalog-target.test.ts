/**
 * Goal: each command and query goes to the catalog that has what it is about.
 * Method: one row for each kind; the schemas say which kinds there are.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { commandTarget, queryTarget } from '../../server/routing/catalog-target.ts';
import { Command, Query } from '../../wire/catalog-api.ts';

const PLACE = { parent: 7, name: 'a' };
const PATH = { volume: 'main', path: '/d/a' };

/** Fields of a command or query that decide, and its target: `root`, `every`, the volume, or the inodes. */
type Row = readonly [kind: string, fields: object, target: string | readonly number[]];

const COMMANDS: readonly Row[] = [
  ['volume-create', { name: 'main' }, 'root'],
  ['volume-set', { name: 'main' }, 'volume main'],
  ['volume-remove', { name: 'main' }, 'root'],
  ['create-file', { place: PLACE }, [7]],
  ['create-file', { place: PATH }, 'volume main'],
  ['void-inodes', { inodes: [8, 9, 8] }, [8, 9]],
  ['reserve-inodes', {}, 'every'],
  [
    'bear',
    {
      files: [
        { ...PLACE, inode: 8 },
        { ...PLACE, inode: 9 },
      ],
    },
    [7],
  ],
  ['forgo', {}, 'every'],
  ['pin-write', { inode: 8, session: 1 }, [8]],
  ['create-orphan', { volume: 'main' }, 'volume main'],
  ['keep-orphan', { inode: 8 }, [8]],
  ['replace', { place: PLACE, inode: 8 }, [7]],
  ['replace-with-contents', { place: PATH, inode: 8 }, 'volume main'],
  ['make-directory', { place: PLACE }, [7]],
  ['make-node', { place: PLACE }, [7]],
  ['remove-directory', { place: PATH }, 'volume main'],
  ['unlink', { place: PLACE }, [7]],
  [
    'unlink-files',
    {
      files: [
        { ...PLACE, inode: 8 },
        { parent: 6, name: 'b', inode: 9 },
      ],
    },
    [7, 6],
  ],
  ['unlink-fenced', { files: [{ ...PLACE, inode: 8 }] }, [7]],
  ['rename', { from: PLACE, to: { parent: 6, name: 'b' } }, [7]],
  ['rename-whiteout', { from: PATH, to: PLACE }, 'volume main'],
  ['symlink', { place: PLACE }, [7]],
  ['link', { inode: 8, place: PLACE }, [7]],
  ['set-attributes', { inode: 8 }, [8]],
  ['set-flags', { inode: 8 }, [8]],
  ['retain', { inode: 8 }, [8]],
  ['snapshot-retain', { volume: 'main' }, 'volume main'],
  ['note-accesses', { volume: 'main', accesses: [{ inode: 8 }] }, 'volume main'],
  ['open-for-write', { inode: 8 }, [8]],
  ['settle', { files: [{ inode: 8 }, { inode: 9 }] }, [8, 9]],
  ['set-xattr', { inode: 8, name: 'user.a' }, [8]],
  ['remove-xattr', { inode: 8, name: 'user.a' }, [8]],
  ['collect', {}, 'every'],
  ['server-register', { id: 'a' }, 'every'],
  ['server-add', { id: 'a' }, 'root'],
  ['server-state', { id: 'a' }, 'root'],
  ['server-zone', { id: 'a' }, 'root'],
  ['server-label', { id: 'a' }, 'root'],
  ['set-placement', { inode: 8 }, [8]],
  ['set-quota', { inode: 8 }, [8]],
  ['walk-quotas', {}, 'every'],
  ['inherit-placement', { inode: 8 }, [8]],
  ['server-maintenance', { id: 'a' }, 'root'],
  ['cluster-set', {}, 'root'],
  ['server-remove', { id: 'a' }, 'root'],
  ['follow-view', { inode: 8 }, [8]],
  ['follow-views', { files: [{ inode: 8 }, { inode: 9 }] }, [8, 9]],
  ['plan-members', { inode: 8 }, [8]],
  ['plan-files', { files: [{ inode: 8 }, { inode: 9 }] }, [8, 9]],
  ['trim-deletions', { server: 'a' }, 'every'],
  ['set-voters', {}, 'root'],
  ['catalog-create', { name: 'main' }, 'root'],
  ['catalog-report', { number: 1 }, 'root'],
  ['catalog-begin', { number: 1 }, 'every'],
  ['catalog-close', {}, 'every'],
  ['follow-servers', {}, 'every'],
  ['extend-numbers', {}, 'every'],
  ['junction-create', { place: { parent: 7, name: 'a' } }, [7]],
  ['junction-remove', { inode: 8 }, [8]],
  ['volume-attach', { name: 'v', inode: 8 }, 'root'],
  ['volume-detach', { name: 'v', inode: 8 }, 'root'],
  ['volume-move', { name: 'v' }, 'root'],
  ['volume-split', { name: 'v', volume: 'w', path: '/d' }, 'root'],
  ['volume-part', { number: 3 }, 'root'],
  ['volume-move-abort', { name: 'v' }, 'root'],
  ['volume-freeze', {}, 'root'],
  ['volume-number', {}, 'root'],
  ['volume-forget', {}, 'root'],
  ['catalog-import', {}, 'every'],
  ['snapshot-create', { volume: 'main', name: 's' }, 'volume main'],
  ['snapshot-remove', { volume: 'main', name: 's' }, 'volume main'],
  ['clone-create', { name: 'v', volume: 'main', snapshot: 's' }, 'root'],
  ['clone-fill', { inode: 8 }, 'root'],
  ['clone-open', { inode: 8 }, 'root'],
  ['clone-filled', { inode: 8 }, 'root'],
  ['clone-flatten', { name: 'v' }, 'root'],
  ['sweep', {}, 'every'],
  ['set-replicas', { inode: 8 }, [8]],
  ['trash-restore', { volume: 'main', inode: 8 }, 'volume main'],
  ['trash-empty', { volume: 'main' }, 'volume main'],
];

const QUERIES: readonly Row[] = [
  ['resolve', { volume: 'main', path: '/' }, 'volume main'],
  ['resolve', { volume: 'main@s', path: '/' }, 'volume main'],
  ['lookup', { parent: 7, name: 'a' }, [7]],
  ['attributes', { inode: 8 }, [8]],
  ['list', { inode: 8, after: '' }, [8]],
  ['xattr', { inode: 8, name: 'user.a' }, [8]],
  ['xattrs', { inode: 8 }, [8]],
  ['volume-of', { inode: 8 }, [8]],
  ['snapshots', { volume: 'main' }, 'volume main'],
  ['snapshot-changes', { volume: 'main', from: 1, to: 2, after: null }, 'volume main'],
  ['sweeps', {}, 'every'],
  ['unfilled', { volume: 'main' }, 'root'],
  ['shared-contents', { inode: 8 }, [8]],
  ['live-files', { volume: 'main' }, 'volume main'],
  ['reservations', { after: 0 }, 'every'],
  ['volume', { name: 'main' }, 'volume main'],
  ['volumes', {}, 'every'],
  ['outcome', { session: 1 }, 'every'],
  ['missing-commands', { answered: [] }, 'every'],
  ['existing', { inodes: [8, 9] }, [8, 9]],
  ['paths', { inodes: [8] }, [8]],
  ['servers', { counts: false }, 'root'],
  ['servers', { counts: true }, 'every'],
  ['voters', {}, 'root'],
  ['catalogs', {}, 'root'],
  ['moves', {}, 'root'],
  ['volume-export', {}, 'root'],
  ['catalog-state', {}, 'every'],
  ['files-on', { server: 'a' }, 'every'],
  ['files-miscounted', { after: 0 }, 'every'],
  ['files-misplaced', { after: null }, 'every'],
  ['placement-classes', {}, 'every'],
  ['directory-quotas', { volume: 'main' }, 'volume main'],
  ['quotas-of', { inode: 8 }, [8]],
  ['quota-walks', {}, 'every'],
  ['quota-walk', { inode: 8 }, [8]],
  ['files-needing', { server: 'a' }, 'every'],
  ['plans', { after: 0 }, 'every'],
  ['deletions', { server: 'a' }, 'every'],
  ['placed', { inodes: [8] }, [8]],
  ['trash', { volume: 'main', path: '/' }, 'volume main'],
];

function textOf(target: ReturnType<typeof commandTarget>): string | readonly number[] {
  if (target.kind === 'volume') return `volume ${target.name}`;
  return target.kind === 'inodes' ? target.inodes : target.kind;
}

function kindsOf(schema: typeof Command | typeof Query): readonly string[] {
  const kinds = schema.anyOf.map(
    ({ properties }) => (properties.kind as { readonly const?: string }).const ?? '',
  );
  return [...new Set(kinds)].sort();
}

test('each command goes to the catalog of what it changes', () => {
  for (const [kind, fields, target] of COMMANDS)
    assert.deepEqual(textOf(commandTarget({ kind, ...fields } as never)), target, kind);
  assert.deepEqual([...new Set(COMMANDS.map(([kind]) => kind))].sort(), kindsOf(Command));
});

test('each query goes to the catalog that knows the answer', () => {
  for (const [kind, fields, target] of QUERIES)
    assert.deepEqual(textOf(queryTarget({ kind, ...fields } as never)), target, kind);
  assert.deepEqual([...new Set(QUERIES.map(([kind]) => kind))].sort(), kindsOf(Query));
});
