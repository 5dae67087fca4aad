import { createHash } from 'node:crypto';
import type Database from 'better-sqlite3';
import { dumpCatalog } from '../../../../catalog/dump.ts';
import { assertSound } from '../../../catalog/soundness.ts';
import type { Judge } from '../judge.ts';
import type { Run } from '../run.ts';
import { readDatabaseCopy } from './database-copy.ts';

interface Catalog {
  /** Of the last operation that is applied. */
  readonly position: string;
  readonly hash: string;
  /** What is unsound. */
  readonly fault: string | null;
}

/** Each replica of the catalog is sound: its counters equal a recount. Replicas at one position are equal. */
export class CatalogsJudge implements Judge {
  readonly name = 'catalogs';

  async quiet(run: Run): Promise<void> {
    const seen = new Map<string, { readonly id: string; readonly hash: string }>();
    for (const { id, disk, hasStarted, rebuilds } of run.cluster.servers) {
      // A page that was damaged on purpose may still be there, unread.
      const catalog = hasStarted && !rebuilds ? run.cluster.time.asHost(() => catalogIn(disk.folder)) : null;
      if (catalog === null) continue;
      const { position, hash, fault } = catalog;
      if (fault !== null) run.violation(`the catalog of ${id} is unsound: ${fault}`);
      const other = seen.get(position);
      if (other === undefined) seen.set(position, { id, hash });
      else if (other.hash !== hash)
        run.violation(`the catalogs of ${other.id} and ${id} differ at ${position}`);
    }
  }
}

function catalogIn(folder: string): Catalog | null {
  return readDatabaseCopy(folder, 'catalog.db', null, (database) => {
    const row = database.prepare('SELECT installed, seq, last FROM replica_record').get();
    const hash = createHash('sha1');
    for (const line of dumpCatalog(database)) hash.update(line);
    return { position: JSON.stringify(row), hash: hash.digest('hex'), fault: faultOf(database) };
  });
}

function faultOf(database: Database.Database): string | null {
  try {
    assertSound(database);
    return null;
  } catch (error) {
    return (error as Error).message;
  }
}
