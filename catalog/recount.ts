import { assert } from '../base/assert.ts';
import { type CatalogDatabase, KIND_FILE } from './schema.ts';
import { Statements } from './statements.ts';

/** A counter that differs from the number of what it counts. */
export interface WrongCounter {
  /** For example `files of server s1`. */
  readonly what: string;
  readonly counter: number;
  readonly counted: number;
}

/** A clause. */
export function wrongCounterText({ what, counter, counted }: WrongCounter): string {
  return `${what}: ${counter} instead of ${counted}`;
}

/** What an inode counts against the quota, in SQL, as `chargeOf`. @param row name of the inode's row */
function chargeSql(row: string): string {
  return `(${row}.kind = ${KIND_FILE}) * MAX(${row}.size, COALESCE(${row}.allowed, 0))`;
}

/** Counters of a volume, each with its value for one inode. @param row name of the inode's row in SQL */
function volumeCounters(row: string): Readonly<Record<string, string>> {
  const isTrashed = `EXISTS (SELECT 1 FROM trash t WHERE t.inode = ${row}.id)`;
  const isNamed = `(${row}.orphaned_ns IS NULL OR ${isTrashed})`;
  const isOrphanInTrash = `(${row}.orphaned_ns IS NOT NULL AND ${isTrashed})`;
  const charge = chargeSql(row);
  return {
    inodes: '1',
    used_bytes: `(${row}.kind = ${KIND_FILE}) * ${row}.size`,
    named_inodes: isNamed,
    named_bytes: `${isNamed} * ${charge}`,
    trashed_inodes: isOrphanInTrash,
    trashed_bytes: `${isOrphanInTrash} * ${charge}`,
  };
}

/** Counters of a directory's quota, without those of quotas in it; each with its value for one inode. */
function directoryCounters(row: string): Readonly<Record<string, string>> {
  const { named_inodes = '', named_bytes = '' } = volumeCounters(row);
  return { named_inodes, named_bytes };
}

const COUNTERS = Object.keys(volumeCounters('i'));
const ADD_TO_VOLUME = `ON CONFLICT (volume) DO UPDATE SET
  ${COUNTERS.map((name) => `${name} = ${name} + excluded.${name}`).join(', ')}`;
const ADD_TO_DIRECTORY = `ON CONFLICT (directory) DO UPDATE SET
  named_inodes = named_inodes + excluded.named_inodes, named_bytes = named_bytes + excluded.named_bytes`;
const ADD_TO_SERVER = 'ON CONFLICT (server) DO UPDATE SET files = files + excluded.files';

function change(row: 'OLD' | 'NEW', sign: 1 | -1): string {
  const signed = (counters: Readonly<Record<string, string>>) =>
    Object.values(counters)
      .map((value) => `${sign} * ${value}`)
      .join(', ');
  return `INSERT INTO recount_volumes VALUES (${row}.volume, ${signed(volumeCounters(row))}) ${ADD_TO_VOLUME};
    INSERT INTO recount_directories SELECT ${row}.quota, ${signed(directoryCounters(row))} WHERE ${row}.quota > 0 ${ADD_TO_DIRECTORY};`;
}

/** A counted orphan enters the trash, or leaves it. */
function changeOfTrash(row: 'OLD' | 'NEW', sign: 1 | -1): string {
  const charge = `${sign} * ${chargeSql('i')}`;
  const isCounted = `i.id = ${row}.inode AND i.orphaned_ns IS NOT NULL AND i.id <= (SELECT inode FROM recount)`;
  return `INSERT INTO recount_volumes SELECT i.volume, 0, 0, ${sign}, ${charge}, ${sign}, ${charge} FROM inodes i
    WHERE ${isCounted} ${ADD_TO_VOLUME};
    INSERT INTO recount_directories SELECT i.quota, ${sign}, ${charge} FROM inodes i
    WHERE ${isCounted} AND i.quota > 0 ${ADD_TO_DIRECTORY};`;
}

const IS_COUNTED = (row: 'OLD' | 'NEW'): string => `${row}.id <= (SELECT inode FROM recount)`;
const IS_PLACEMENT_COUNTED = (row: 'OLD' | 'NEW'): string =>
  `(${row}.server, ${row}.inode) <= (SELECT server, server_inode FROM recount)`;

/** Of an inode: what its part of the counters depends on, beside the trash. */
const COUNTED_COLUMNS = 'size, allowed, orphaned_ns, volume, quota';

const TRIGGERS: Readonly<Record<string, string>> = {
  recount_placed: `AFTER INSERT ON main.placements WHEN ${IS_PLACEMENT_COUNTED('NEW')} BEGIN
    INSERT INTO recount_servers VALUES (NEW.server, 1) ${ADD_TO_SERVER}; END`,
  recount_left: `AFTER DELETE ON main.placements WHEN ${IS_PLACEMENT_COUNTED('OLD')} BEGIN
    INSERT INTO recount_servers VALUES (OLD.server, -1) ${ADD_TO_SERVER}; END`,
  recount_created: `AFTER INSERT ON main.inodes WHEN ${IS_COUNTED('NEW')} BEGIN ${change('NEW', 1)} END`,
  recount_deleted: `AFTER DELETE ON main.inodes WHEN ${IS_COUNTED('OLD')} BEGIN ${change('OLD', -1)} END`,
  recount_changed: `AFTER UPDATE OF ${COUNTED_COLUMNS} ON main.inodes WHEN ${IS_COUNTED('OLD')} BEGIN
    ${change('OLD', -1)} ${change('NEW', 1)} END`,
  recount_trashed: `AFTER INSERT ON main.trash BEGIN ${changeOfTrash('NEW', 1)} END`,
  recount_untrashed: `AFTER DELETE ON main.trash BEGIN ${changeOfTrash('OLD', -1)} END`,
};

const TABLES = `
  -- rows of inodes and placements up to here are counted
  CREATE TEMP TABLE recount (inode INTEGER NOT NULL, server NOT NULL, server_inode INTEGER NOT NULL);
  INSERT INTO recount VALUES (0, '', 0);
  CREATE TEMP TABLE recount_servers (server TEXT PRIMARY KEY COLLATE BINARY, files INTEGER NOT NULL) WITHOUT ROWID;
  CREATE TEMP TABLE recount_volumes (
    volume INTEGER PRIMARY KEY, ${COUNTERS.map((name) => `${name} INTEGER NOT NULL`).join(', ')}
  );
  CREATE TEMP TABLE recount_directories (
    directory INTEGER PRIMARY KEY, named_inodes INTEGER NOT NULL, named_bytes INTEGER NOT NULL
  );
`;

const REMOVAL = [
  ...Object.keys(TRIGGERS).map((name) => `DROP TRIGGER IF EXISTS temp.${name};`),
  ...['recount', 'recount_servers', 'recount_volumes', 'recount_directories'].map(
    (name) => `DROP TABLE IF EXISTS temp.${name};`,
  ),
].join('\n');

/** After all names of servers, because it is no text. */
const LAST_SERVER = "x'ff'";

/**
 * Counts in slices what the catalog's counters count: the files of each server, the inodes and bytes of each volume
 * and of each directory with a quota.
 *
 * The catalog changes meanwhile: rows up to the position are counted, and temporary triggers count changes of them;
 * later rows are counted once the position passes them. So the result is exact at its end, without a long read
 * transaction, which would keep SQLite from restarting its log. The count is in temporary tables of the handle that
 * executes batches: undoing a batch or command undoes its part of the count, and the database does not change.
 */
export class Recount {
  readonly #db: CatalogDatabase;
  readonly #statements: Statements;

  /** Begins at the first row; between batches, so that undoing one does not undo this. @param db executes batches */
  constructor(db: CatalogDatabase) {
    assert(!db.inTransaction, 'A recount begins between batches');
    this.#db = db;
    this.#statements = new Statements(db);
    // Else SQLite creates a file for tables of some hundred bytes.
    db.pragma('temp_store = MEMORY');
    const triggers = Object.entries(TRIGGERS).map(([name, text]) => `CREATE TEMP TRIGGER ${name} ${text};`);
    db.exec(`SAVEPOINT recount; ${REMOVAL} ${TABLES} ${triggers.join('\n')} RELEASE recount`);
  }

  /** Whether it counts with this handle: a copy of another server's catalog has a new one. */
  isOf(db: CatalogDatabase): boolean {
    return this.#db === db;
  }

  /** Counts the next `countMax` rows, also within a batch. @returns whether all are counted */
  step(countMax: number): boolean {
    this.#db.exec('SAVEPOINT step');
    try {
      const isEnd = !this.#countInodes(countMax) && !this.#countPlacements(countMax);
      this.#db.exec('RELEASE step');
      return isEnd;
    } catch (error) {
      if (this.#db.inTransaction) this.#db.exec('ROLLBACK TO step; RELEASE step');
      throw error;
    }
  }

  /** Compares the counters with the rows; call once `step` has returned true. */
  wrongCounters(): WrongCounter[] {
    const ofServers = this.#statements.all<{ server: string; counter: number; counted: number }>(
      `SELECT server, COALESCE(c.files, 0) AS counter, COALESCE(r.files, 0) AS counted
       FROM placement_counts c FULL JOIN recount_servers r USING (server)
       WHERE counter <> counted ORDER BY server`,
    );
    return [
      ...ofServers.map(({ server, ...counts }) => ({ what: `files of server ${server}`, ...counts })),
      ...COUNTERS.flatMap((name) => this.#wrongOfVolumes(name)),
      ...Object.keys(directoryCounters('i')).flatMap((name) => this.#wrongOfDirectories(name)),
    ];
  }

  /** Call between batches. */
  end(): void {
    assert(!this.#db.inTransaction, 'A recount ends between batches');
    this.#db.exec(`SAVEPOINT recount; ${REMOVAL} RELEASE recount`);
  }

  #wrongOfVolumes(name: string): WrongCounter[] {
    return this.#statements
      .all<{ volume: string; counter: number; counted: number }>(
        `SELECT COALESCE(v.name, CAST(r.volume AS TEXT)) AS volume, COALESCE(v.${name}, 0) AS counter,
           COALESCE(r.${name}, 0) AS counted
         FROM volumes v FULL JOIN recount_volumes r ON r.volume = v.id WHERE counter <> counted ORDER BY volume`,
      )
      .map(({ volume, ...counts }) => ({ what: `${name} of volume ${volume}`, ...counts }));
  }

  /** Each directory counts what is counted for it, and for those with a quota in it. */
  #wrongOfDirectories(name: string): WrongCounter[] {
    return this.#statements
      .all<{ directory: number; counter: number; counted: number }>(
        `WITH RECURSIVE counts (directory, n) AS (
           SELECT r.directory, r.${name} FROM recount_directories r JOIN directory_quotas q USING (directory)
           UNION ALL SELECT q.enclosing, c.n FROM counts c JOIN directory_quotas q USING (directory)
             WHERE q.enclosing > 0)
         SELECT q.directory, q.${name} AS counter, COALESCE(SUM(c.n), 0) AS counted
         FROM directory_quotas q LEFT JOIN counts c ON c.directory = q.directory
         GROUP BY q.directory HAVING counter <> counted ORDER BY q.directory`,
      )
      .map(({ directory, ...counts }) => ({ what: `${name} of directory ${directory}`, ...counts }));
  }

  /** @returns whether there were any */
  #countInodes(countMax: number): boolean {
    const from = this.#statements.counter('SELECT inode FROM recount');
    if (from === Number.MAX_SAFE_INTEGER) return false;
    const row = this.#statements.get<{ last: number | null }>(
      'SELECT MAX(id) AS last FROM (SELECT id FROM inodes WHERE id > ? ORDER BY id LIMIT ?)',
      ...[from, countMax],
    );
    const last = row?.last ?? Number.MAX_SAFE_INTEGER;
    const sums = Object.values(volumeCounters('i')).map((value) => `SUM(${value})`);
    this.#statements.run(
      `INSERT INTO recount_volumes SELECT i.volume, ${sums.join(', ')} FROM inodes i
       WHERE i.id > ? AND i.id <= ? GROUP BY i.volume ${ADD_TO_VOLUME}`,
      ...[from, last],
    );
    const ofDirectory = Object.values(directoryCounters('i')).map((value) => `SUM(${value})`);
    this.#statements.run(
      `INSERT INTO recount_directories SELECT i.quota, ${ofDirectory.join(', ')} FROM inodes i
       WHERE i.id > ? AND i.id <= ? AND i.quota > 0 GROUP BY i.quota ${ADD_TO_DIRECTORY}`,
      ...[from, last],
    );
    this.#statements.run('UPDATE recount SET inode = ?', last);
    return true;
  }

  #countPlacements(countMax: number): boolean {
    const from = this.#statements.get<{ server: unknown; inode: number }>(
      'SELECT server, server_inode AS inode FROM recount',
    );
    if (from === undefined || typeof from.server !== 'string') return false;
    const last = this.#statements.get<{ server: string; inode: number }>(
      `SELECT server, inode FROM placements WHERE (server, inode) > (?, ?)
       ORDER BY server, inode LIMIT 1 OFFSET ?`,
      ...[from.server, from.inode, countMax - 1],
    );
    const [to, values] = last === undefined ? [LAST_SERVER, [0]] : ['?', [last.server, last.inode]];
    this.#statements.run(
      `INSERT INTO recount_servers SELECT server, COUNT(*) FROM placements
       WHERE (server, inode) > (?, ?) AND (server, inode) <= (${to}, ?) GROUP BY server ${ADD_TO_SERVER}`,
      ...[from.server, from.inode, ...values],
    );
    this.#statements.run(`UPDATE recount SET server = ${to}, server_inode = ?`, ...values);
    return true;
  }
}
