import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { run, runOk } from '../cluster/cluster-mount.ts';
import { ask } from '../http/ask.ts';
import { isLong } from '../long.ts';
import { isMissing, type OnMount, onMount, onMounts, PROGRAM_MS_MAX, skip } from './on-mount.ts';

const PROJECT = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
const FILES = isLong ? 1_000 : 80;

if (skip === false) await define();
else test('everyday programs on a mount of a real cluster', { skip }, () => undefined);

async function define(): Promise<void> {
  // The mounts start before the first test is declared: the runner must know all tests before it ends any.
  const mounts = isLong ? await onMounts() : [await onMount()];
  const missing = await Promise.all(['git', 'tar', 'npm', 'setfacl', 'rsync'].map(isMissing));
  for (const on of mounts) defineOn(on, missing);
}

function defineOn(
  { cluster, transport, volume, mount, local, env }: OnMount,
  [noGit = false, noTar = false, noNpm = false, noLists = false, noRsync = false]: readonly (
    | string
    | false
  )[],
): void {
  const repository = join(local, 'repository');
  for (let number = 0; number < FILES; number++) {
    const folder = join(repository, `d${number % 17}`, `e${number % 5}`);
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, `f${number}.txt`), `${number}\n`.repeat(1 + ((number * 37) % 900)));
  }
  writeFileSync(join(repository, 'run.sh'), '#!/bin/sh\necho runs\n', { mode: 0o755 });

  test(`${transport}: git clone of ${FILES} files, and git fsck`, { skip: noGit }, async (t) => {
    const git = (cwd: string, ...argv: string[]) =>
      runOk('git', ['-c', 'user.name=Test', '-c', 'user.email=test@example.org', ...argv], {
        cwd,
        env,
        timeoutMs: PROGRAM_MS_MAX,
      });
    await git(repository, 'init', '--quiet', '--initial-branch=main');
    await git(repository, 'add', '.');
    await git(repository, 'commit', '--quiet', '--message=All of it');
    const clone = mount.path('clone');
    const { tookMs } = await git('/', 'clone', '--quiet', `file://${repository}`, clone);
    t.diagnostic(`git clone took ${(tookMs / 1000).toFixed(1)} s`);
    await git(clone, 'fsck', '--full', '--strict');
    assert.equal((await git(clone, 'status', '--porcelain')).text, '');
    await runOk('diff', ['--recursive', '--exclude=.git', repository, clone]);
    assert.equal((await runOk(join(clone, 'run.sh'), [])).text, 'runs\n');
    writeFileSync(join(local, 'message'), 'From the mount\n');
    await runOk('sh', ['-c', 'echo more >> "$0"/run.sh && mv "$0"/d1 "$0"/moved', clone]);
    await git(clone, 'add', '--all');
    await git(clone, 'commit', '--quiet', '--file', join(local, 'message'));
    await git(clone, 'gc', '--quiet');
    await git(clone, 'fsck', '--full');
    assert.equal((await git(clone, 'log', '--format=%s')).text, 'From the mount\nAll of it\n');
  });

  test(`${transport}: programs that copy take access control lists along`, {
    skip: noLists || noTar || noRsync,
  }, async () => {
    const script = `
      cd "$0" && umask 022 && mkdir from && cd from && mkdir kept && echo file > file && echo plain > plain
      setfacl -m u:4711:rw,g:4712:r file && setfacl -m u:4711:rwx -m d:u:4711:rwx,d:g::r-x,d:o::- kept
      echo inherits > kept/inherits && mkdir kept/below && chmod g-w file && cd ..
      cp -a from copied
      mkdir taken && tar -C from --acls -cf - . | tar -C taken --acls -xpf -
      rsync -aA from/ synced/
      list() { (cd "$1" && getfacl -R -n . | grep -v '^$'); }
      list from > lists
      for other in copied taken synced; do list $other | diff lists - || exit 1; done
      getfacl -n from/file from/kept/inherits`;
    const { text } = await runOk('sh', ['-c', script, mount.directory], { timeoutMs: PROGRAM_MS_MAX });
    const wanted = ['user:4711:rw-', 'group:4712:r--', 'mask::r--', 'user:4711:rwx', 'mask::rw-'];
    for (const line of wanted) assert.ok(text.includes(line), `${line} in ${text}`);
  });

  test(`${transport}: tar there and back keeps contents, modes, times and links`, {
    skip: noTar,
  }, async () => {
    await runOk('sh', [
      '-c',
      'cd "$0" && ln -s d1/e1 link && ln run.sh hard && chmod 640 d2/e2/f2.txt && touch -d "2001-02-03 04:05:06.789012345" run.sh',
      repository,
    ]);
    await runOk(
      'sh',
      [
        '-c',
        'tar -C "$0" --exclude=.git --format=posix -cf - . | (mkdir "$1" && tar -C "$1" -xpf -)',
        repository,
        mount.path('tar'),
      ],
      { timeoutMs: PROGRAM_MS_MAX },
    );
    const back = join(local, 'back');
    await runOk('sh', [
      '-c',
      'tar -C "$0" --format=posix -cf - . | (mkdir "$1" && tar -C "$1" -xpf -)',
      mount.path('tar'),
      back,
    ]);
    await runOk('diff', ['--recursive', '--no-dereference', '--exclude=.git', repository, back]);
    const list = (folder: string) =>
      runOk('sh', [
        '-c',
        'cd "$0" && find . -path ./.git -prune -o ! -type d -printf "%P %y %m %n %T@ %s %l\\n" | sort',
        folder,
      ]);
    const wanted = (await list(repository)).text;
    const found = (await list(mount.path('tar'))).text;
    assert.deepEqual([linesOnlyIn(wanted, found), linesOnlyIn(found, wanted)], [[], []]);
    // Through libfuse the links of one file have separate inode numbers, so tar stores them as several files.
    const unlinked = (text: string) =>
      transport === 'native' ? text.replaceAll(/ (\d+) 2 (\d)/g, ' $1 1 $2') : text;
    const returned = (await list(back)).text;
    assert.deepEqual(
      [linesOnlyIn(unlinked(wanted), returned), linesOnlyIn(returned, unlinked(wanted))],
      [[], []],
    );
    assert.match(wanted, /run\.sh f 755 2 981173106\.789012345/);
  });

  test(`${transport}: npm ci of a package with a dependency from a file`, { skip: noNpm }, async (t) => {
    const project = mount.path('project');
    const manifest = {
      name: 'app',
      version: '1.0.0',
      private: true,
      dependencies: { dep: 'file:dep-1.2.3.tgz' },
    };
    const dependency = join(local, 'dep');
    mkdirSync(dependency);
    writeFileSync(
      join(dependency, 'package.json'),
      JSON.stringify({ name: 'dep', version: '1.2.3', main: 'index.js' }),
    );
    writeFileSync(join(dependency, 'index.js'), 'module.exports = "from the dependency";\n');
    const app = join(local, 'app');
    mkdirSync(app);
    writeFileSync(join(app, 'package.json'), JSON.stringify(manifest));
    const npm = (cwd: string, ...argv: string[]) =>
      runOk('npm', [...argv, '--offline', '--no-audit', '--no-fund', '--no-update-notifier'], {
        cwd,
        env,
        timeoutMs: PROGRAM_MS_MAX,
      });
    await npm(dependency, 'pack', '--pack-destination', app);
    await npm(app, 'install', '--package-lock-only');
    await runOk('cp', ['-r', app, project]);
    const { tookMs } = await npm(project, 'ci');
    t.diagnostic(`npm ci took ${(tookMs / 1000).toFixed(1)} s`);
    const { text } = await runOk(process.execPath, ['--print', 'require("dep")'], { cwd: project });
    assert.equal(text, 'from the dependency\n');
  });

  test(`${transport}: SQLite with a rollback journal, also when its process is killed in a transaction`, async (t) => {
    const database = mount.path('data.db');
    const sqlite = (script: string) =>
      run(process.execPath, ['--input-type=module', '--eval', SQLITE_BEGIN + script, database], {
        cwd: PROJECT,
      });
    const filled = await sqlite(`
      db.exec('CREATE TABLE t (id INTEGER PRIMARY KEY, text TEXT); CREATE INDEX i ON t (text)');
      const insert = db.prepare('INSERT INTO t (text) VALUES (?)');
      for (let batch = 0; batch < 20; batch++) {
        db.transaction(() => { for (let n = 0; n < 50; n++) insert.run('row ' + batch + '/' + n + ' '.repeat(200)); })();
      }
      try {
        db.transaction(() => { insert.run('never'); throw new Error('rolled back'); })();
      } catch (error) { if (error.message !== 'rolled back') throw error; }
    `);
    assert.equal(filled.code, 0, filled.text);
    t.diagnostic(`21 transactions took ${(filled.tookMs / 1000).toFixed(1)} s`);
    // With a cache of a few pages SQLite writes to the file before the transaction ends.
    const killed = await sqlite(`
      db.pragma('cache_size = 40');
      db.exec('BEGIN');
      db.exec("UPDATE t SET text = 'spoiled ' || text");
      process.kill(process.pid, 'SIGKILL');
    `);
    assert.equal(killed.code, null, killed.text);
    t.diagnostic(`a transaction that was cut short took ${(killed.tookMs / 1000).toFixed(1)} s`);
    const journal = await runOk('stat', ['--format=%s', `${database}-journal`]);
    assert.ok(Number(journal.text) > 0, 'The killed process has left its journal');
    const checked = await sqlite(`
      const [{ n }] = db.prepare("SELECT count(*) AS n FROM t WHERE text LIKE 'row %'").all();
      console.log(JSON.stringify([n, db.pragma('integrity_check', { simple: true }), db.pragma('journal_mode', { simple: true })]));
    `);
    t.diagnostic(`rolling it back took ${(checked.tookMs / 1000).toFixed(1)} s`);
    assert.equal(checked.text.trim(), '[1000,"ok","delete"]');
    const through = await ask(
      cluster.url(cluster.ids.at(-1) as string),
      'GET',
      `/v1/files/${volume}/data.db`,
    );
    const copy = join(local, 'copy.db');
    writeFileSync(copy, through.bytes);
    await runOk('cmp', [copy, database]);
    assert.ok(readFileSync(copy).subarray(0, 15).equals(Buffer.from('SQLite format 3')));
  });
}

function linesOnlyIn(text: string, other: string): string[] {
  const others = new Set(other.split('\n'));
  return text.split('\n').filter((line) => !others.has(line));
}

const SQLITE_BEGIN = `
  import Database from 'better-sqlite3';
  const db = new Database(process.argv[1]);
  db.pragma('journal_mode = DELETE');
  db.pragma('synchronous = FULL');
`;
