import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { Prng } from '../../base/prng.ts';
import { epoch, fileId } from '../conformance/store.ts';
import { isLong } from '../long.ts';
import { CATALOG, FILE_IDS, modelOf, openCatalog, type Said, writeUntil } from './crash-writer.ts';
import { LoopDisk } from './loop-disk.ts';
import { DiskFixture, FOLDER } from './stores.ts';

const ROUNDS = Number(process.env.ROUNDS ?? (isLong ? 16 : 4));
const SEED = Number(process.env.SEED ?? 1);

/**
 * Goal: what was synced survives a loss of power, index, contents and catalog alike, on a real file system; what was
 * not is whole or lost. Nothing torn is ever read, and overwriting never endangers what was synced.
 * Method: a writer on a loop-mounted file system prints what was applied, synced and promised. Its power is cut without
 * writing back what the kernel has in memory: after the writer was killed, or while it runs, so that it meets a disk
 * that fails. Then the file system is mounted again, and all is compared with a model.
 */
for (const kind of ['ext4', 'xfs'] as const) {
  test(`power is cut under ${kind}`, { timeout: 600_000 }, async (t) => {
    const made = LoopDisk.make(kind, 320);
    if (made.disk === null) return t.skip(made.why);
    const { disk } = made;
    const prng = new Prng(SEED);
    const seen = {
      rolledBack: 0,
      kept: 0,
      gone: 0,
      synced: 0,
      underFeet: 0,
      before: new Map<number, number>(),
    };
    try {
      if (!(await canCut(disk))) {
        disk.remove();
        return t.skip('this kernel cannot shut a file system down');
      }
      for (let round = 1; round <= ROUNDS; round++) {
        const underFeet = prng.chance(0.5);
        const lines = prng.integer(150, 1500);
        const said = await writeUntil(disk.folder, lines, (child) => {
          if (!underFeet) child.kill('SIGKILL');
          else assert.ok(disk.cutPower());
        });
        assert.ok(said.lines >= lines, 'The writer wrote until it was ended from outside');
        if (underFeet) seen.underFeet++;
        else assert.ok(disk.cutPower());
        disk.repower();
        await check(disk, said, round, seen);
      }
      t.diagnostic(
        `${kind}, ${ROUNDS} cuts (${seen.underFeet} under a running writer): in ${seen.synced} cases a file had been synced and kept that, ` +
          `${seen.kept} unsynced operations too, ${seen.gone} were gone, ${seen.rolledBack} files went back a generation`,
      );
      assert.ok(seen.synced > 0 && seen.gone > 0, 'The cuts lost something');
    } catch (error) {
      disk.abandon();
      throw error;
    }
    disk.remove();
  });
}

async function canCut(disk: LoopDisk): Promise<boolean> {
  if (!disk.cutPower()) return false;
  disk.repower();
  return true;
}

async function check(
  disk: LoopDisk,
  said: Said,
  round: number,
  seen: Seen & { rolledBack: number },
): Promise<void> {
  const fixture = await DiskFixture.make({}, disk.folder, { ...FOLDER, bootId: `boot ${round}` });
  const { store, folder } = fixture;
  assert.equal(folder.lostPower, true);
  seen.rolledBack += store.recovery.rolledBack.length;
  for (const id of FILE_IDS) {
    const record = store.record(fileId(id));
    const synced = said.synced.get(id) ?? 0;
    if (record === null) {
      // Neither a promise nor a sync was reported yet: the writer was stopped before.
      assert.equal(synced + (said.promised.get(id) ?? 0), 0, `File ${id} is there`);
      continue;
    }
    assert.ok(record.seq >= synced, `File ${id} is at ${record.seq}, ${synced} was synced`);
    assert.ok(record.promised.counter >= (said.promised.get(id) ?? 0), `File ${id} keeps its promise`);
    const contents = Buffer.from(await store.read(fileId(id), 0, 1_000_000));
    assert.deepEqual(contents, modelOf(id, record.seq), `File ${id} at ${record.seq} in round ${round}`);
    if (record.installed.counter > 0) assert.equal(store.trust(fileId(id)), 'suspect');
    count(said, id, record.seq, seen);
  }
  const catalog = await openCatalog(folder);
  const { seq } = catalog.record();
  assert.ok(seq >= (said.synced.get(CATALOG) ?? 0), `The catalog is at ${seq}`);
  const wanted = Array.from({ length: Math.max(0, seq - 1) }, (_, at) => `d${at + 2}`);
  if (seq > 0) assert.deepEqual(namesOf(catalog).sort(), wanted.sort(), `The catalog at ${seq}`);
  count(said, CATALOG, seq, seen);
  if (catalog.record().installed.counter > 0) {
    assert.equal(catalog.trust(), 'suspect');
    assert.deepEqual(catalog.record().installed, epoch(1));
  }
  await catalog.close();
  await fixture.close();
}

interface Seen {
  /** Files that had a sync since the cut before, unsynced operations that were kept, and that were lost. */
  synced: number;
  kept: number;
  gone: number;
  /** Where each file was after the cut before. */
  readonly before: Map<number, number>;
}

function count(said: Said, id: number, seq: number, seen: Seen): void {
  const synced = said.synced.get(id) ?? 0;
  if (synced > 0) seen.synced++;
  seen.kept += Math.max(0, seq - Math.max(synced, seen.before.get(id) ?? 0));
  seen.gone += Math.max(0, (said.applied.get(id) ?? 0) - seq);
  seen.before.set(id, seq);
}

function namesOf(catalog: Awaited<ReturnType<typeof openCatalog>>): string[] {
  const { attributes } = catalog.query({ kind: 'resolve', volume: 'main', path: '/', follow: false });
  const names: string[] = [];
  for (let after = ''; ; ) {
    const page = catalog.query({ kind: 'list', inode: attributes.inode, after, countMax: 1000 });
    names.push(...page.entries.map((entry) => entry.name));
    const last = page.entries.at(-1);
    if (last === undefined || page.entries.length < 1000) return names;
    after = last.name;
  }
}

test('a disk has its power again while another mount namespace uses the file system from before', async (t) => {
  const made = LoopDisk.make('ext4', 64);
  if (made.disk === null) return t.skip(made.why);
  const { disk } = made;
  t.after(() => disk.abandon());
  const file = join(disk.folder, 'file');
  writeFileSync(file, 'synced', { flush: true });
  const holder = spawn('unshare', ['--mount', 'sh', '-c', 'echo there; exec sleep 300'], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  t.after(() => holder.kill('SIGKILL'));
  await once(holder.stdout, 'data');
  if (!disk.cutPower()) return t.skip('this kernel cannot shut a file system down');
  disk.repower();
  assert.equal(readFileSync(file, 'utf8'), 'synced');
});
