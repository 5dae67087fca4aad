import assert from 'node:assert/strict';
import Database from 'better-sqlite3';
import { decodeBatch, encodeBatch, executeBatch, executeRequests } from '../../catalog/batch.ts';
import { dumpCatalog } from '../../catalog/dump.ts';
import { ensureSchema } from '../../catalog/schema.ts';
import type { Outcome } from '../../catalog/sessions.ts';
import type { Command, CommandRequest } from '../../wire/catalog-api.ts';
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

  constructor(membersVersion?: number) {
    this.membersVersion = membersVersion;
    ensureSchema(this.primary);
    ensureSchema(this.backup);
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
    this.primary.exec('COMMIT');
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

  equal(): void {
    assert.deepEqual([...dumpCatalog(this.backup)], [...dumpCatalog(this.primary)]);
  }
}

export function makeDirectory(name: string): Command {
  return { kind: 'make-directory', place: { volume: 'main', path: name }, mode: 0o755, uid: 0, gid: 0 };
}
