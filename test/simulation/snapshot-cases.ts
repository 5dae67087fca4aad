/** Directed runs: snapshots, and what happens between the moment that they show and the first change after it. */
import type { FileId, ServerId } from '../../base/ids.ts';
import { decodeFileOperation } from '../../wire/file-operation.ts';
import type { Campaign } from './planted.ts';
import {
  A,
  B,
  C,
  D,
  directed,
  HEARTBEATS_MS,
  LONG_MS,
  type Script,
  SHORT_MS,
  X,
  Y,
  Z,
} from './system-script.ts';
import type { SnapshotCatalog } from './system-snapshots.ts';

const ZERO_MS = () => 0;

function withSnapshots(
  script: (s: Script, catalog: SnapshotCatalog) => void,
  options: Parameters<typeof directed>[0] = {},
): () => string | null {
  return directed({ ...options, hasSnapshots: true }, (s) => {
    const catalog = s.system.snapshots as SnapshotCatalog;
    catalog.delayMs = () => 0.5;
    script(s, catalog);
    for (const name of catalog.shown.keys())
      for (const server of s.system.world.ids)
        s.expect(reads(s, catalog, name, server), `${server} reads ${name}`);
  });
}

function made(s: Script, catalog: SnapshotCatalog): string {
  let made: string | null = null;
  catalog.create((name) => {
    made = name;
  });
  s.run(2 * SHORT_MS);
  if (made === null) throw new Error('Expected: the snapshot is made');
  return made;
}

/** Whether the server answers a reader; what it says, the catalog judges. */
function reads(
  s: Script,
  catalog: SnapshotCatalog,
  name: string,
  server: ServerId,
  known: Parameters<SnapshotCatalog['read']>[2] = new Map(),
): boolean {
  let isAnswered = false;
  catalog.read(name, server, known, (answered) => {
    isAnswered = answered;
  });
  s.run(2 * HEARTBEATS_MS);
  return isAnswered;
}

function writes(s: Script, server: ServerId, wish: typeof X): void {
  const { answer } = s.write(server, wish);
  s.expect(answer?.kind === 'done', `${server} writes ${wish.value}`);
}

function flushes(s: Script, server: ServerId): void {
  const flushed = s.system.flush(server);
  s.run();
  s.expect(flushed.answer?.kind === 'flushed', `${server} flushes`);
}

/** What others send of an operation of the kind is lost. */
function lose(s: Script, kind: 'settling' | 'preserve', lost: (to: ServerId) => boolean): void {
  s.rule = (_from, to, message) => {
    if (message?.kind !== 'write' || message.operation.view !== undefined) return null;
    return decodeFileOperation(message.operation.body).kind === kind && lost(to) ? 'drop' : null;
  };
}

function losePowerEverywhere(s: Script): void {
  s.system.troubles.losePower(s.system.world.ids, ZERO_MS, true);
  s.run(10);
}

export const SNAPSHOT_CASES: Campaign['scenarios'] = {
  /** What was flushed is in the snapshot, and nobody synced that the file had settled: the next primary must ask before it writes. */
  'snapshot, and power of all after it': withSnapshots((s, catalog) => {
    s.lead(A);
    writes(s, A, X);
    flushes(s, A);
    made(s, catalog);
    losePowerEverywhere(s);
    s.lead(B);
    writes(s, B, Y);
    s.expect(s.shown(B) === Y.value, 'the file goes on');
  }),

  /** The same, and a primary in between that wrote nothing: whoever comes after it has lost nothing itself. */
  'snapshot, power of all, and two primaries after it': withSnapshots((s, catalog) => {
    s.lead(A);
    writes(s, A, X);
    flushes(s, A);
    made(s, catalog);
    losePowerEverywhere(s);
    s.lead(B);
    s.run(HEARTBEATS_MS);
    s.system.world.crash(B);
    s.lead(C, 2 * LONG_MS);
    writes(s, C, Y);
    s.system.world.restart(B);
    s.run(HEARTBEATS_MS);
  }),

  /** The mark was set again after what the catalog synced, and the change after that was flushed. */
  'power of all, and a snapshot after it': withSnapshots((s, catalog) => {
    s.lead(A);
    writes(s, A, X);
    flushes(s, A);
    s.system.world.call(A, () => s.system.process(A).settle(() => undefined));
    s.run();
    catalog.flush(B, () => undefined);
    s.run();
    writes(s, A, Y);
    flushes(s, A);
    losePowerEverywhere(s);
    s.lead(B);
    made(s, catalog);
    writes(s, B, Z);
  }),

  /** a is settling when it is cut off: the next primary goes on by the mark, and the snapshot has what it acknowledged. */
  'snapshot while the primary changes': withSnapshots((s, catalog) => {
    s.lead(A);
    writes(s, A, X);
    lose(s, 'settling', () => true);
    let name: string | null = null;
    catalog.create((answer) => {
      name = answer;
    });
    s.run(2 * SHORT_MS);
    s.expect(name === null, 'the snapshot waits for what nobody else has');
    s.isolated.add(A);
    s.system.revoke(A);
    s.rule = () => null;
    s.lead(B, 2 * LONG_MS);
    writes(s, B, Y);
    s.isolated.clear();
    s.run(LONG_MS / 2);
    s.system.grant(B, LONG_MS);
    s.run(LONG_MS / 2);
    if (name === null) made(s, catalog);
    writes(s, B, Z);
  }),

  /** c sees nothing of the snapshot, nor of the first change after it, and comes back when the others are gone one by one. */
  'snapshot of which a backup saw nothing': withSnapshots((s, catalog) => {
    s.lead(A);
    writes(s, A, X);
    s.run(HEARTBEATS_MS);
    s.isolated.add(C);
    const name = made(s, catalog);
    writes(s, A, Y);
    s.isolated.clear();
    s.run(HEARTBEATS_MS);
    s.system.world.crash(A);
    s.expect(reads(s, catalog, name, C), 'c shows what b has preserved');
    s.lead(B, 2 * LONG_MS);
    writes(s, B, Z);
    s.system.world.restart(A);
    s.run(HEARTBEATS_MS);
  }),

  /**
   * c comes back when nobody has the operation any more that it missed, and is brought up past it: it says that it is there, and synced. b has
   * what is preserved, and was not asked to sync it.
   */
  'preserved by two, and synced by another two': withSnapshots(
    (s, catalog) => {
      s.lead(A);
      writes(s, A, X);
      made(s, catalog);
      s.isolated.add(C);
      s.rule = (_from, to, message) => (to === B && message?.kind === 'flush' ? 'drop' : null);
      const write = s.system.change(A, 91, Y);
      s.run();
      s.isolated.clear();
      s.run(HEARTBEATS_MS);
      s.expect(write.answer?.kind === 'done', 'the file is written');
      s.expect(
        !s.system.preservedAt(C).has([...s.system.preservedAt(A).keys()][0] as FileId),
        'c has it not',
      );
    },
    { retainedBytesMax: 1 },
  ),

  /** d joins between the snapshot and the first change, and leads when that comes. */
  'snapshot before a replica joins': withSnapshots(
    (s, catalog) => {
      s.lead(A);
      writes(s, A, X);
      made(s, catalog);
      const moved = s.system.move(A, [A, B, C, D]);
      s.run(HEARTBEATS_MS);
      s.system.grant(A, LONG_MS);
      s.run(HEARTBEATS_MS);
      s.expect(moved.answer?.kind === 'moved', 'd joins');
      s.system.revoke(A);
      s.lead(D, 2 * LONG_MS);
      writes(s, D, Y);
      made(s, catalog);
      writes(s, D, Z);
    },
    { servers: 4, replicas: 3 },
  ),

  /** Stored by all when the first snapshot is made, and named after it; the second one shows it as it was borne, whatever becomes of it. */
  'snapshots before and after a file that is borne gets its name': withSnapshots(
    (s, catalog) => {
      catalog.delayMs = () => SHORT_MS;
      s.system.bear(X, 71);
      s.run(SHORT_MS / 2);
      s.expect(
        [A, B, C].every((id) => s.system.disks.get(id)?.record.seq === 2),
        'all have stored it',
      );
      catalog.delayMs = () => 0.5;
      const before = made(s, catalog);
      s.expect(catalog.shown.get(before)?.isAbsent === true, 'it has no name yet');
      const after = made(s, catalog);
      s.expect(catalog.shown.get(after)?.text === X.value, 'it has its name');
      s.lead(A);
      writes(s, A, Y);
      s.expect(s.system.preservedAt(A).size === 1, 'what was borne is preserved');
      losePowerEverywhere(s);
      s.lead(B);
      writes(s, B, Z);
    },
    { isBorne: true },
  ),

  /** What is preserved goes with the snapshot: a reader that knows where it was is not shown anything else. */
  'snapshot removed under its reader': withSnapshots((s, catalog) => {
    s.lead(A);
    writes(s, A, X);
    const name = made(s, catalog);
    writes(s, A, Y);
    const kept = made(s, catalog);
    writes(s, A, Z);
    const known = new Map();
    s.expect(reads(s, catalog, name, B, known), 'b knows where it is');
    catalog.remove(name);
    for (let round = 0; round < 4; round++) {
      catalog.sweep();
      for (const server of [A, B, C]) catalog.collectAt(server);
      s.run();
    }
    s.expect(s.system.preservedAt(A).size === 1, 'what only the removed one showed is gone');
    s.expect(reads(s, catalog, name, B, known), 'its reader comes to an end');
    s.expect(reads(s, catalog, kept, B), 'the other is there');
  }),
};
