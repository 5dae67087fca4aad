import assert from 'node:assert/strict';
import Database from 'better-sqlite3';
import { type CatalogNumber, ROOT_CATALOG } from '../../base/ids.ts';
import { decodeBatch, encodeBatch, executeBatch, executeRequests } from '../../catalog/batch.ts';
import { dumpCatalog } from '../../catalog/dump.ts';
import { ensureSchema } from '../../catalog/schema.ts';
import type { Outcome } from '../../catalog/sessions.ts';
import type { Command, CommandOf, CommandRequest, CommandResults } from '../../wire/catalog-api.ts';
import { SERVERS } from './fixture.ts';

/** A primary's database and a backup's, which executes the primary's batches. */
export class Pair {
  readonly primary = new Database(':memory:');
  readonly backup = new Database(':memory:');
  seq = 0;
  nowNs = 1_700_000_000_000_000_000n;
  /** The version encoded in each batch that has commands; 1 if it has none. */
  readonly versions: number[] = [];
  /** Version of commands that all members of the catalog are known to execute; that of this release if undefined. */
  membersVersion: number | undefined;

  /** Of the root catalog, with a volume `main`; or of a volume's, which has not begun. */
  constructor(membersVersion?: number, catalog: CatalogNumber = ROOT_CATALOG) {
    this.membersVersion = membersVersion;
    ensureSchema(this.primary, catalog);
    ensureSchema(this.backup, catalog);
    if (catalog === ROOT_CATALOG)
      this.run({ kind: 'volume-create', name: 'main', replicas: 3, objectBytes: 4096 });
  }

  /** As a request of a session that the tests do not use otherwise. */
  run(command: Command): void {
    this.batch([{ session: 1, number: this.seq + 1, command }]);
  }

  batch(requests: readonly CommandRequest[]): readonly Outcome[] {
    this.seq += 1;
    this.primary.exec('BEGIN');
    const { membersVersion } = this;
    const { batch, outcomes } = executeRequests(this.primary, this.seq, requests, {
      nowNs: ++this.nowNs,
      placement: (count: number) => SERVERS.slice(this.seq % 3, (this.seq % 3) + count),
      ...(membersVersion !== undefined && { membersVersion }),
    });
    // As the store does it: a batch without commands is not replicated.
    this.primary.exec(batch.commands.length === 0 ? 'ROLLBACK' : 'COMMIT');
    const body = encodeBatch(batch);
    assert.deepEqual(decodeBatch(body), batch, 'A batch survives its encoding');
    if (body.length > 0)
      this.versions.push(
        (JSON.parse(Buffer.from(body).toString()) as { readonly version?: number }).version ?? 1,
      );
    this.backup.exec('BEGIN');
    executeBatch(this.backup, this.seq, decodeBatch(body));
    this.backup.exec('COMMIT');
    return outcomes;
  }

  /** As the only request of its session; both are equal then. */
  outcome(command: Command): Outcome {
    const [outcome] = this.batch([{ session: 1_000 + this.seq, number: 1, since: 0, command }]);
    assert.ok(outcome !== undefined);
    this.equal();
    return outcome;
  }

  done<Kind extends Command['kind']>(
    command: Extract<Command, { kind: Kind }> & { kind: Kind },
  ): CommandResults[Kind] {
    const outcome = this.outcome(command);
    assert.ok(outcome.kind === 'done', JSON.stringify(outcome));
    return outcome.result as CommandResults[Kind];
  }

  equal(): void {
    assert.deepEqual([...dumpCatalog(this.backup)], [...dumpCatalog(this.primary)]);
  }
}

export function makeDirectory(name: string): CommandOf<'make-directory'> {
  return { kind: 'make-directory', place: { volume: 'main', path: name }, mode: 0o755, uid: 0, gid: 0 };
}
