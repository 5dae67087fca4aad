import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { type CatalogNumber, type FileId, inodesOf, ROOT_CATALOG, type ServerId } from '../../base/ids.ts';
import { DataFolder } from '../../server/storage/data-folder.ts';
import { FolderError, type FolderErrorCode } from '../../server/storage/folder-error.ts';
import { FOLDER, temporaryFolder } from './stores.ts';

describe('data folder', () => {
  let parent: string;
  let folder: string;

  beforeEach(() => {
    parent = temporaryFolder();
    folder = path.join(parent, 'data');
  });
  afterEach(() => fs.rmSync(parent, { recursive: true, force: true }));

  const refused = (code: FolderErrorCode, wanted: RegExp) => (error: unknown) => {
    assert.ok(error instanceof FolderError, String(error));
    assert.equal(error.code, code);
    assert.match(error.message, wanted);
    assert.match(error.message, /Cannot use .+: .+\. \w/s, 'fault, reason and remedy');
    return true;
  };

  test('is created on first use and keeps its identity', () => {
    const first = DataFolder.open(folder, FOLDER);
    assert.equal(first.startCounter, 1);
    assert.equal(first.lostPower, false);
    first.close();
    const second = DataFolder.open(folder, FOLDER);
    assert.equal(second.startCounter, 2);
    assert.equal(second.storageId, first.storageId);
    assert.equal(second.lostPower, false, 'the same boot');
    second.close();
  });

  test('reports the same about the disk as another folder on it, within one start of the machine', () => {
    const diskOf = (name: string, bootId: string): string | null => {
      const opened = DataFolder.open(path.join(parent, name), { ...FOLDER, bootId });
      opened.close();
      return opened.disk;
    };
    const disk = diskOf('a', 'one');
    assert.ok(disk !== null);
    assert.equal(diskOf('b', 'one'), disk);
    assert.notEqual(diskOf('c', 'two'), disk, 'It may be a disk of another machine');
  });

  test('remembers the longest silence until it has passed', () => {
    const open = (filesMs: number, namesMs: number) =>
      DataFolder.open(folder, { ...FOLDER, silences: { filesMs, namesMs } });
    open(5000, 60_000).close();
    const shorter = open(2000, 15_000);
    assert.deepEqual(shorter.silences, { filesMs: 5000, namesMs: 60_000 });
    shorter.close();
    const again = open(2000, 15_000);
    assert.deepEqual(again.silences, { filesMs: 5000, namesMs: 60_000 }, 'It ended before that was over');
    again.replaceSilences({ filesMs: 2000, namesMs: 15_000 });
    again.close();
    const last = open(2000, 15_000);
    assert.deepEqual(last.silences, { filesMs: 2000, namesMs: 15_000 });
    last.close();
  });

  test('remembers up to which reading of the clock it has voted on names, ahead of each vote', () => {
    const nowMs = 1_000_000;
    const open = (bootId: string) => DataFolder.open(folder, { ...FOLDER, bootId });
    const first = open('one');
    assert.equal(first.earlierNamedClockMs, -Infinity, 'It has never voted');
    const untilMs = first.coverNamedClock(nowMs);
    assert.ok(untilMs > nowMs);
    assert.equal(first.coverNamedClock(nowMs + 1), untilMs, 'One sync for many votes');
    // As if it was killed: the lock is released, and nothing is stored.
    const killed = fs.readFileSync(path.join(folder, 'META'));
    first.close();
    fs.writeFileSync(path.join(folder, 'META'), killed);

    const sameBoot = open('one');
    const formerMs = sameBoot.earlierNamedClockMs;
    assert.ok(formerMs >= nowMs && formerMs < nowMs + 10_000, 'What that clock would show by now');
    sameBoot.close();
    fs.writeFileSync(path.join(folder, 'META'), killed);
    const nextBoot = open('two');
    assert.equal(
      nextBoot.earlierNamedClockMs,
      untilMs,
      'The monotonic clock started again, and proves nothing',
    );
    assert.equal(nextBoot.coverNamedClock(nowMs), untilMs, 'Never less than before');
    nextBoot.markClean();
    nextBoot.close();
    const third = open('three');
    assert.ok(third.earlierNamedClockMs < nowMs + 10_000, 'In good order it ends with what was shown');
    third.close();
  });

  test('remembers by which view its server votes on names, and the clocks of earlier voters', () => {
    const open = (bootId: string) => DataFolder.open(folder, { ...FOLDER, bootId });
    const meta = () => JSON.parse(fs.readFileSync(path.join(folder, 'META'), 'utf8'));
    const made = open('one');
    assert.equal(made.voters, null, 'What preceded a new folder is unknown');
    made.setVoters('first', 1_000_000);
    assert.deepEqual([made.voters, meta().format], ['first', 1]);
    const view = { number: 2, members: { servers: ['s1' as ServerId], perCell: 5 }, clockMs: 5_000_000 };
    made.setVoters(view, 1_000_000);
    const killed = fs.readFileSync(path.join(folder, 'META'));
    made.close();
    for (const bootId of ['one', 'two']) {
      fs.writeFileSync(path.join(folder, 'META'), killed);
      const again = open(bootId);
      assert.deepEqual([again.voters, meta().format], [view, 2], 'No earlier release uses it');
      assert.ok(again.earlierNamedClockMs >= view.clockMs, `${again.earlierNamedClockMs} in boot ${bootId}`);
      again.close();
    }
    fs.writeFileSync(path.join(folder, 'META'), JSON.stringify({ ...meta(), voters: { number: 2 } }));
    assert.throws(() => open('one'), refused('damaged', /voters/));
    fs.writeFileSync(path.join(folder, 'META'), JSON.stringify({ ...meta(), voters: undefined }));
    const earlier = open('one');
    assert.equal(earlier.voters, 'first', 'Of a release that knew no other');
    earlier.close();
  });

  test('remembers from which file on it has had its replicas', () => {
    const made = DataFolder.open(folder, FOLDER);
    assert.equal(made.firstFileId(ROOT_CATALOG), null, 'It has not been notified yet');
    made.setFirstFileId(ROOT_CATALOG, 17 as FileId);
    made.close();
    const again = DataFolder.open(folder, FOLDER);
    assert.equal(again.firstFileId(ROOT_CATALOG), 17);
    assert.throws(() => again.setFirstFileId(ROOT_CATALOG, 18 as FileId), /first file id is set once/);
    again.close();
  });

  test('remembers which replicas a loss of power may have taken', () => {
    const open = (bootId: string) => DataFolder.open(folder, { ...FOLDER, bootId });
    const [held, next] = [20 as FileId, (20 + 4_096) as FileId];
    const first = open('one');
    assert.equal(first.trustOfNew(held), null, 'How far the folder can be trusted is not known yet');
    first.setFirstFileId(ROOT_CATALOG, 17 as FileId);
    first.recordReplica(held);
    assert.equal(first.trustOfNew(16 as FileId), 'lost');
    assert.equal(first.trustOfNew(held), 'intact', 'It would be here');
    first.close();
    const killed = open('one');
    assert.equal(killed.trustOfNew(held), 'intact', 'A process that ends loses nothing');
    killed.close();
    const dark = open('two');
    assert.deepEqual(
      [held, next].map((file) => dark.trustOfNew(file)),
      ['suspect', 'intact'],
    );
    assert.equal(dark.trustOfNew(16 as FileId), 'lost');
    dark.markRecovered();
    dark.recordReplica(next);
    assert.equal(dark.trustOfNew(next), 'intact');
    dark.close();
    const again = open('two');
    assert.deepEqual(
      [held, next].map((file) => again.trustOfNew(file)),
      ['suspect', 'intact'],
    );
    again.close();
    const darkAgain = open('three');
    assert.equal(darkAgain.trustOfNew(next), 'suspect');
    darkAgain.close();
  });

  test('trusts replicas by what it knows of the catalog of their files alone', () => {
    const open = (bootId: string) => DataFolder.open(folder, { ...FOLDER, bootId });
    const meta = () => JSON.parse(fs.readFileSync(path.join(folder, 'META'), 'utf8'));
    const [volume, other] = [3 as CatalogNumber, 4 as CatalogNumber];
    const file = (catalog: CatalogNumber, place: number) => (inodesOf(catalog).first + place) as FileId;
    const first = open('one');
    first.setFirstFileId(ROOT_CATALOG, 17 as FileId);
    assert.equal(meta().format, 1, 'An earlier release may use it');
    assert.equal(first.trustOfNew(file(volume, 9)), null, 'It is not registered with that catalog');
    first.setFirstFileId(volume, file(volume, 5));
    assert.equal(meta().format, 3, 'An earlier release would trust them as files of the root catalog');
    assert.equal(first.trustOfNew(file(volume, 4)), 'lost');
    assert.equal(first.trustOfNew(file(volume, 5)), 'intact');
    assert.equal(first.trustOfNew(file(other, 5)), null);
    assert.equal(first.trustOfNew(16 as FileId), 'lost');
    assert.throws(() => first.setFirstFileId(volume, file(volume, 6)), /first file id is set once/);
    first.recordReplica(file(volume, 9));
    first.recordReplica(file(other, 9));
    first.close();
    const dark = open('two');
    assert.deepEqual(
      [ROOT_CATALOG, volume, other].map((one) => dark.firstFileId(one)),
      [17, file(volume, 5), null],
    );
    assert.equal(dark.trustOfNew(17 as FileId), 'intact', 'No replica of the root catalog was missed');
    assert.equal(dark.trustOfNew(file(volume, 9)), 'suspect');
    assert.equal(dark.trustOfNew(file(volume, 9 + 4_096)), 'intact');
    dark.setFirstFileId(other, file(other, 0));
    assert.equal(dark.trustOfNew(file(other, 9)), 'suspect', 'It was recorded before the catalog was known');
    assert.equal(dark.trustOfNew(file(other, 9 + 4_096)), 'intact');
    dark.markRecovered();
    dark.forgetCatalog(other);
    assert.deepEqual(Object.keys(meta().catalogs), ['3']);
    assert.equal(dark.trustOfNew(file(other, 9)), null, 'It has no replica of a removed catalog');
    dark.close();
    for (const catalogs of [
      null,
      { 0: meta().catalogs[3] },
      { 3: { ...meta().catalogs[3], heldBelow: -1 } },
      { x: {} },
    ]) {
      const whole = meta();
      fs.writeFileSync(path.join(folder, 'META'), JSON.stringify({ ...whole, catalogs }));
      assert.throws(() => open('two'), refused('damaged', /contains invalid catalogs/));
      fs.writeFileSync(path.join(folder, 'META'), JSON.stringify(whole));
    }
  });

  test('is used as before if an earlier release wrote it', () => {
    const meta = () => JSON.parse(fs.readFileSync(path.join(folder, 'META'), 'utf8'));
    const made = DataFolder.open(folder, { ...FOLDER, bootId: 'one' });
    made.setFirstFileId(ROOT_CATALOG, 17 as FileId);
    made.recordReplica(20 as FileId);
    made.close();
    const { catalogs, ...earlier } = meta();
    assert.deepEqual(catalogs, {});
    fs.writeFileSync(path.join(folder, 'META'), JSON.stringify(earlier));
    const upgraded = DataFolder.open(folder, { ...FOLDER, bootId: 'two' });
    assert.deepEqual(
      [16, 17, 20, 20 + 4_096].map((file) => upgraded.trustOfNew(file as FileId)),
      ['lost', 'suspect', 'suspect', 'intact'],
    );
    assert.equal(upgraded.trustOfNew(inodesOf(1 as CatalogNumber).first), null);
    upgraded.close();
    assert.equal(meta().format, 1, 'The earlier release may use it again');
  });

  test('records a replica again whose record could not be written', () => {
    const made = DataFolder.open(folder, FOLDER);
    const meta = () => JSON.parse(fs.readFileSync(path.join(folder, 'META'), 'utf8'));
    const file = inodesOf(2 as CatalogNumber).first;
    const obstacle = path.join(folder, 'META.new');
    fs.mkdirSync(obstacle);
    assert.throws(() => made.recordReplica(file), /EISDIR/);
    fs.rmdirSync(obstacle);
    assert.deepEqual(meta().catalogs, {});
    made.recordReplica(file);
    assert.deepEqual(meta().catalogs, { 2: { bornAt: null, heldBelow: file + 4_096, missedBelow: 0 } });
    made.close();
  });

  test('notices a loss of power, once', () => {
    DataFolder.open(folder, { ...FOLDER, bootId: 'one' }).close();
    const after = DataFolder.open(folder, { ...FOLDER, bootId: 'two' });
    assert.equal(after.lostPower, true);
    assert.equal(after.powerLossStart, 2);
    after.markRecovered();
    after.close();
    const again = DataFolder.open(folder, { ...FOLDER, bootId: 'two' });
    assert.equal(again.lostPower, false);
    assert.equal(again.powerLossStart, 2, 'the state after the loss is remembered');
    again.markClean();
    again.close();
    const clean = DataFolder.open(folder, { ...FOLDER, bootId: 'three' });
    assert.equal(clean.lostPower, false, 'a folder closed in order loses nothing');
    clean.close();
  });

  test('a disk that failed counts as a loss of power, whether or not the failure could be recorded', () => {
    const first = DataFolder.open(folder, { ...FOLDER, bootId: 'one' });
    first.markFailed();
    first.close();
    const second = DataFolder.open(folder, { ...FOLDER, bootId: 'one' });
    assert.equal(second.lostPower, true);
    assert.equal(second.powerLossStart, 2);
    second.markRecovered();
    // META cannot be replaced: something that is no file has its name.
    fs.mkdirSync(path.join(folder, 'META.new'));
    second.markFailed();
    second.close();
    fs.rmdirSync(path.join(folder, 'META.new'));
    const third = DataFolder.open(folder, { ...FOLDER, bootId: 'one' });
    assert.equal(third.lostPower, fs.existsSync('/dev/shm'));
    third.markRecovered();
    third.close();
    const fourth = DataFolder.open(folder, { ...FOLDER, bootId: 'one' });
    assert.equal(fourth.lostPower, false, 'once');
    fourth.close();
  });

  test('a start after a loss of power that is killed before its check leaves the check to the next', () => {
    DataFolder.open(folder, { ...FOLDER, bootId: 'one' }).close();
    DataFolder.open(folder, { ...FOLDER, bootId: 'two' }).close();
    const looking = DataFolder.open(folder, { ...FOLDER, bootId: 'two' });
    assert.equal(looking.lostPower, true);
    looking.markRecovered();
    looking.close();
    const after = DataFolder.open(folder, { ...FOLDER, bootId: 'two' });
    assert.equal(after.lostPower, false);
    after.close();
  });

  test('an unknown boot counts as another one', () => {
    DataFolder.open(folder, { ...FOLDER, bootId: null }).close();
    const after = DataFolder.open(folder, { ...FOLDER, bootId: null });
    assert.equal(after.lostPower, true);
    after.close();
  });

  test('is held by one user at a time', () => {
    const held = DataFolder.open(folder, FOLDER);
    assert.throws(
      () => DataFolder.open(folder, FOLDER),
      refused('locked', new RegExp(`process ${process.pid}`)),
    );
    assert.equal(held.startCounter, 1);
    held.close();
    const next = DataFolder.open(folder, FOLDER);
    assert.equal(next.startCounter, 2, 'the refused start does not count');
    next.close();
  });

  test('the lock ends with its process, even by kill -9', async () => {
    const script = `
      import { systemWorld } from ${JSON.stringify(path.resolve('world/system-world.ts'))};
      import { DataFolder } from ${JSON.stringify(path.resolve('server/storage/data-folder.ts'))};
      DataFolder.open(${JSON.stringify(folder)}, { ...${JSON.stringify(FOLDER)}, world: systemWorld });
      console.log('open');
      setInterval(() => {}, 1000);`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    await once(child.stdout, 'data');
    assert.throws(
      () => DataFolder.open(folder, FOLDER),
      refused('locked', new RegExp(`process ${child.pid}`)),
    );
    child.kill('SIGKILL');
    await once(child, 'exit');
    const next = DataFolder.open(folder, FOLDER);
    assert.equal(next.startCounter, 2);
    next.close();
  });

  test('refuses the folder of another cluster or server', () => {
    DataFolder.open(folder, FOLDER).close();
    assert.throws(
      () => DataFolder.open(folder, { ...FOLDER, cluster: 'b' }),
      refused('wrong-cluster', /"test"/),
    );
    assert.throws(
      () => DataFolder.open(folder, { ...FOLDER, server: 'z' as ServerId }),
      refused('wrong-server', /"a"/),
    );
  });

  test('refuses a folder with other files in it, and leaves them alone', () => {
    fs.mkdirSync(folder);
    fs.writeFileSync(path.join(folder, 'thesis.tex'), 'x');
    assert.throws(() => DataFolder.open(folder, FOLDER), refused('foreign', /thesis\.tex/));
    assert.deepEqual(fs.readdirSync(folder), ['thesis.tex']);
  });

  test('refuses a path that is not a folder', () => {
    fs.writeFileSync(folder, 'x');
    assert.throws(() => DataFolder.open(folder, FOLDER), refused('foreign', /not a folder/));
    assert.throws(
      () => DataFolder.open(path.join(folder, 'inner'), FOLDER),
      refused('foreign', /not a folder/),
    );
  });

  test('refuses a newer format and a damaged META file', () => {
    DataFolder.open(folder, FOLDER).close();
    const meta = path.join(folder, 'META');
    const text = fs.readFileSync(meta, 'utf8');
    fs.writeFileSync(meta, text.replace('"format": 1', '"format": 9'));
    assert.throws(() => DataFolder.open(folder, FOLDER), refused('unknown-format', /format is 9/));
    fs.writeFileSync(meta, text.slice(0, 30));
    assert.throws(() => DataFolder.open(folder, FOLDER), refused('damaged', /META/));
    fs.writeFileSync(meta, text.replace('"startCounter"', '"other"'));
    assert.throws(() => DataFolder.open(folder, FOLDER), refused('damaged', /counter/));
  });

  test('finishes a first start that was interrupted', () => {
    fs.mkdirSync(path.join(folder, 'objects', '00'), { recursive: true });
    fs.writeFileSync(path.join(folder, 'META.new'), '{');
    const made = DataFolder.open(folder, FOLDER);
    assert.equal(made.startCounter, 1);
    assert.equal(fs.readdirSync(path.join(folder, 'objects')).length, 256);
    made.close();
  });

  test('refuses a folder that it may not write to', async (t) => {
    if (process.getuid?.() !== 0) {
      fs.mkdirSync(folder, { mode: 0o500 });
      assert.throws(() => DataFolder.open(folder, FOLDER), refused('not-writable', /no write permission/));
      return;
    }
    // Root may write anywhere but to a read-only file system.
    const { mounted } = await import('./mounts.ts');
    const tmpfs = mounted(folder, ['-t', 'tmpfs', '-o', 'ro', 'tmpfs']);
    if (tmpfs === null) return t.skip('mount is not allowed here');
    try {
      assert.throws(() => DataFolder.open(folder, FOLDER), refused('not-writable', /no write permission/));
    } finally {
      tmpfs.unmount();
    }
  });
});
