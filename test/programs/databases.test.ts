/**
 * Goal: databases on a mount lose no committed transaction and find no damage.
 * Method: clients write while the primary of the file that they write most is killed repeatedly. Then the databases
 * are queried for what was committed, run their own checks, and are checked again after an immediate stop.
 */
import assert from 'node:assert/strict';
import { mkdirSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { type RunResult, run, runOk } from '../cluster/cluster-mount.ts';
import { isLong } from '../long.ts';
import { isMissing, type OnMount, onMounts, PROGRAM_MS_MAX, skip } from './on-mount.ts';

const PROJECT = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
const POSTGRES = readdirOrNone('/usr/lib/postgresql').map((version) => `/usr/lib/postgresql/${version}/bin`);
const KILLS = 3;
const WRITERS = 3;
const TRANSACTIONS = 100;

if (!isLong) test('databases on a mount', { skip: 'They take minutes: npm run programs' }, () => undefined);
else if (skip === false) await define();
else test('databases on a mount of a real cluster', { skip }, () => undefined);

async function define(): Promise<void> {
  const mounts = await onMounts();
  const postgres = POSTGRES.at(-1);
  const noPostgres =
    postgres === undefined
      ? 'There is no PostgreSQL here'
      : process.getuid?.() === 0
        ? (await isMissing('runuser')) || (await noUser('postgres'))
        : 'Only root can start PostgreSQL as a user of its own';
  for (const on of mounts) {
    testSqlite(on);
    testPostgres(on, postgres ?? '', noPostgres);
  }
}

function testSqlite({ cluster, transport, volume, mount }: OnMount): void {
  test(`${transport}: SQLite with a write-ahead log, ${WRITERS} processes, primaries killed`, async (t) => {
    const database = mount.path('wal.db');
    const sqlite = (script: string, ...words: string[]) =>
      run(process.execPath, ['--input-type=module', '--eval', SQLITE_BEGIN + script, database, ...words], {
        cwd: PROJECT,
        timeoutMs: PROGRAM_MS_MAX,
      });
    const made = await sqlite('db.exec("CREATE TABLE t (writer INTEGER, number INTEGER, text TEXT)")');
    assert.equal(made.code, 0, made.text);
    const writing = Promise.all(
      Array.from({ length: WRITERS }, (_, writer) => sqlite(SQLITE_WRITE, String(writer))),
    );
    await killPrimaries({ cluster, path: `${volume}/wal.db`, until: writing });
    for (const { code, text, tookMs } of await writing) {
      assert.equal(code, 0, text);
      t.diagnostic(`${TRANSACTIONS} transactions of a writer took ${(tookMs / 1000).toFixed(1)} s`);
    }
    const checked = await sqlite(`
      const counted = db.prepare('SELECT writer, count(DISTINCT number) AS n, count(*) AS m FROM t GROUP BY writer ORDER BY writer').all();
      console.log(JSON.stringify([counted.map(({ n, m }) => [n, m]), db.pragma('integrity_check', { simple: true })]));
    `);
    const each = Array.from({ length: WRITERS }, () => [TRANSACTIONS, TRANSACTIONS]);
    assert.equal(checked.text.trim(), JSON.stringify([each, 'ok']));
  });
}

function testPostgres(on: OnMount, programs: string, noPostgres: string | false): void {
  const { cluster, transport, volume, mount, env } = on;
  const at = { env, timeoutMs: PROGRAM_MS_MAX };
  test(`${transport}: PostgreSQL: initdb, pgbench while primaries are killed, an immediate stop, recovery`, {
    skip: noPostgres,
  }, async (t) => {
    const folder = mount.path('postgres');
    mkdirSync(folder);
    await runOk('chown', ['postgres:', folder], at);
    const as = (program: string, ...words: string[]) =>
      runOk('runuser', ['-u', 'postgres', '--', `${programs}/${program}`, ...words], at);
    const data = join(folder, 'data');
    const { tookMs } = await as(
      'initdb',
      '-D',
      data,
      '--auth=trust',
      '--data-checksums',
      '--no-instructions',
    );
    t.diagnostic(`initdb took ${(tookMs / 1000).toFixed(1)} s`);
    // The socket is on the mount, too; the server listens on no network address.
    const options = `-c listen_addresses= -c unix_socket_directories=${folder} -c shared_buffers=16MB`;
    const log = join(folder, 'log');
    const start = () => as('pg_ctl', '-D', data, '-l', log, '-o', options, '-w', '-t', '300', 'start');
    const stop = (mode: string) =>
      run('runuser', ['-u', 'postgres', '--', `${programs}/pg_ctl`, '-D', data, '-m', mode, 'stop']);
    const sql = async (text: string) =>
      (await as('psql', '-h', folder, '-d', 'postgres', '-At', '-c', text)).text.trim();
    const sums = async () => [
      await sql('SELECT sum(abalance) FROM pgbench_accounts'),
      await sql('SELECT sum(delta) FROM pgbench_history'),
      await sql('SELECT count(*) FROM pgbench_history'),
    ];
    await start();
    try {
      await as('pgbench', '-h', folder, '-i', '-s', '2', '-q', 'postgres');
      const calm = await as('pgbench', '-h', folder, '-c', '4', '-j', '2', '-T', '15', 'postgres');
      t.diagnostic(`with all servers: ${figure(calm)}`);
      const accounts = await sql("SELECT pg_relation_filepath('pgbench_accounts')");
      // Without -n pgbench would delete its history first.
      const bench = as('pgbench', '-n', '-h', folder, '-c', '4', '-j', '2', '-T', '40', 'postgres');
      await killPrimaries({ cluster, path: `${volume}/postgres/data/${accounts}`, until: bench });
      const killed = await bench;
      t.diagnostic(`while primaries are killed: ${figure(killed)}`);
      assert.match(killed.text, /number of failed transactions: 0 /);
      const before = await sums();
      assert.equal(before[1], before[0]);
      await as('pg_amcheck', '-h', folder, '--install-missing', '--heapallindexed', 'postgres');
      await stop('immediate');
      await start();
      assert.deepEqual(await sums(), before);
      assert.equal((await stop('fast')).code, 0);
      await as('pg_checksums', '--check', '-D', data);
    } finally {
      await stop('immediate');
    }
  });
}

function figure({ text }: RunResult): string {
  return /^tps = .*$/m.exec(text)?.[0] ?? 'no figure';
}

/** Kills the file's primary `KILLS` times, and restarts it each time; ends early once `until` settles. */
async function killPrimaries({
  cluster,
  path,
  until,
}: {
  readonly cluster: OnMount['cluster'];
  readonly path: string;
  readonly until: Promise<unknown>;
}): Promise<void> {
  let isOver = false;
  const over = until.finally(() => {
    isOver = true;
  });
  for (let kill = 0; kill < KILLS && !isOver; kill++) {
    const primary = await cluster.primaryOf(path);
    await cluster.kill(primary);
    // Another server has taken over before the restart.
    await cluster.primaryOf(path);
    await cluster.restart(primary);
    await Promise.race([over, delay(2_000)]);
  }
}

function readdirOrNone(folder: string): string[] {
  try {
    return readdirSync(folder).sort((a, b) => Number(a) - Number(b));
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return [];
    throw error;
  }
}

async function noUser(name: string): Promise<string | false> {
  return (await run('id', [name])).code === 0 ? false : `There is no user ${name} here`;
}

const SQLITE_BEGIN = `
  import Database from 'better-sqlite3';
  const db = new Database(process.argv[1], { timeout: 120_000 });
  if (db.pragma('journal_mode = WAL', { simple: true }) !== 'wal') throw new Error('No write-ahead log');
  db.pragma('synchronous = FULL');
`;

const SQLITE_WRITE = `
  const writer = Number(process.argv[2]);
  const insert = db.prepare('INSERT INTO t VALUES (?, ?, ?)');
  const last = db.prepare('SELECT max(number) AS number FROM t WHERE writer = ?');
  for (let number = 0; number < ${TRANSACTIONS}; number++) {
    db.transaction(() => {
      if ((last.get(writer).number ?? -1) !== number - 1) throw new Error('A committed row is gone');
      insert.run(writer, number, 'x'.repeat(500));
    }).immediate();
  }
`;
