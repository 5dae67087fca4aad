import type Database from 'better-sqlite3';
import { FolderError } from './folder-error.ts';

const APPLICATION_ID = 0x4c48_6f6c; // "LHol"
/** 2: generations have their view. 3: sealed files. 4: files that borrow objects of another. 5: pending removals. */
export const INDEX_FORMAT = 5;

const STATE_COLUMNS = `
  view TEXT NOT NULL,
  seq INTEGER NOT NULL,
  sessions BLOB NOT NULL,
  size_bytes INTEGER NOT NULL,
  modified_s INTEGER NOT NULL,
  modified_ns INTEGER NOT NULL,
  version_epoch INTEGER NOT NULL,
  version_seq INTEGER NOT NULL,
  size_epoch INTEGER NOT NULL,
  size_seq INTEGER NOT NULL,
  dead INTEGER NOT NULL,
  seal INTEGER NOT NULL DEFAULT 0`;

const OBJECT_COLUMNS = `
  idx INTEGER NOT NULL,
  version_epoch INTEGER NOT NULL,
  version_seq INTEGER NOT NULL,
  length INTEGER NOT NULL,
  crc32 INTEGER NOT NULL,
  slot INTEGER NOT NULL`;

const REMOVALS = `
CREATE TABLE removals (
  file INTEGER PRIMARY KEY,
  first INTEGER NOT NULL,
  last INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  seq INTEGER NOT NULL
) STRICT;`;

const SCHEMA = `
CREATE TABLE files (
  file INTEGER PRIMARY KEY,
  promised TEXT NOT NULL,
  installed TEXT NOT NULL,
  installed_start INTEGER NOT NULL,
  object_bytes INTEGER NOT NULL, ${STATE_COLUMNS},
  lender INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX borrowers ON files (lender) WHERE lender > 0;
CREATE TABLE objects (file INTEGER NOT NULL, ${OBJECT_COLUMNS}, PRIMARY KEY (file, idx)) STRICT, WITHOUT ROWID;
CREATE TABLE undo_files (
  file INTEGER NOT NULL, generation INTEGER NOT NULL, ${STATE_COLUMNS},
  PRIMARY KEY (file, generation)
) STRICT, WITHOUT ROWID;
CREATE TABLE undo_objects (
  file INTEGER NOT NULL, generation INTEGER NOT NULL, ${OBJECT_COLUMNS},
  PRIMARY KEY (file, generation, idx)
) STRICT, WITHOUT ROWID;
CREATE TABLE removed (file INTEGER PRIMARY KEY) STRICT; ${REMOVALS}
PRAGMA application_id = ${APPLICATION_ID};
PRAGMA user_version = ${INDEX_FORMAT};`;

/** Creates the tables of a new index, or those that its format lacks. @throws FolderError `unknown-format` */
export function prepareSchema(database: Database.Database, path: string): void {
  const format = database.pragma('user_version', { simple: true });
  const application = database.pragma('application_id', { simple: true });
  if (format === 0 && application === 0) {
    database.exec(`BEGIN IMMEDIATE; ${SCHEMA} COMMIT`);
    return;
  }
  if (application === APPLICATION_ID && format === INDEX_FORMAT) return;
  if (application === APPLICATION_ID && typeof format === 'number' && format < INDEX_FORMAT) {
    // Views did not change in format 1, so a generation has its file's.
    const views = `
      ALTER TABLE undo_files ADD COLUMN view TEXT NOT NULL DEFAULT '';
      UPDATE undo_files SET view = (SELECT view FROM files WHERE files.file = undo_files.file);`;
    const seals = `
      ALTER TABLE files ADD COLUMN seal INTEGER NOT NULL DEFAULT 0;
      ALTER TABLE undo_files ADD COLUMN seal INTEGER NOT NULL DEFAULT 0;`;
    const lenders = `
      ALTER TABLE files ADD COLUMN lender INTEGER NOT NULL DEFAULT 0;
      CREATE INDEX borrowers ON files (lender) WHERE lender > 0;`;
    database.exec(`BEGIN IMMEDIATE; ${format < 2 ? views : ''} ${format < 3 ? seals : ''}
      ${format < 4 ? lenders : ''} ${REMOVALS}
      PRAGMA user_version = ${INDEX_FORMAT}; COMMIT`);
    return;
  }
  throw new FolderError(
    'unknown-format',
    `Cannot open ${path}: its format is ${String(format)}, and this release supports ${INDEX_FORMAT}. ` +
      'Run the release that wrote it',
  );
}
