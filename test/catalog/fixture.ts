import assert from 'node:assert/strict';
import Database from 'better-sqlite3';
import { type ErrorCode, ServiceError } from '../../base/errors.ts';
import type { ServerId } from '../../base/ids.ts';
import { executeRequests } from '../../catalog/batch.ts';
import type { CommandContext } from '../../catalog/command.ts';
import { dumpCatalog } from '../../catalog/dump.ts';
import { type QueryOf, runQuery } from '../../catalog/queries.ts';
import { ensureSchema } from '../../catalog/schema.ts';
import { outcomeResult } from '../../catalog/sessions.ts';
import type { Attributes, Command, CommandResults, Query, QueryResults } from '../../wire/catalog-api.ts';

export const SERVERS = ['s1', 's2', 's3', 's4', 's5'] as ServerId[];

/** A catalog in memory, with a clock that advances once per command, and a volume `main`. */
export class Catalog {
  readonly db = new Database(':memory:');
  readonly root: number;
  timeNs = 1_700_000_000_000_000_000n;
  #seq = 0;
  #number = 0;

  constructor() {
    ensureSchema(this.db);
    const { volume } = this.run({ kind: 'volume-create', name: 'main', replicas: 3, objectBytes: 131_072 });
    this.root = volume.root;
  }

  readonly context: CommandContext = {
    nowNs: 0n,
    placement: (count) => SERVERS.slice(0, count),
  };

  /** Executes a command in its own transaction. */
  run<Kind extends Command['kind']>(
    command: Extract<Command, { kind: Kind }> & { kind: Kind },
  ): CommandResults[Kind] {
    this.timeNs += 1n;
    this.#seq += 1;
    this.#number += 1;
    this.db.exec('BEGIN');
    const { outcomes } = executeRequests(
      this.db,
      this.#seq,
      [{ session: 1, number: this.#number, command }],
      { ...this.context, nowNs: this.timeNs },
    );
    this.db.exec('COMMIT');
    const [outcome] = outcomes;
    assert(outcome !== undefined);
    return outcomeResult(outcome) as CommandResults[Kind];
  }

  /**
   * Executes commands under one request number, one after the other.
   * @returns each command's outcome
   */
  runAs(session: number, number: number, ...commands: readonly Command[]): unknown[] {
    return commands.map((command) => {
      this.timeNs += 1n;
      this.#seq += 1;
      this.db.exec('BEGIN');
      const context = { ...this.context, nowNs: this.timeNs };
      const { outcomes } = executeRequests(this.db, this.#seq, [{ session, number, command }], context);
      this.db.exec('COMMIT');
      const [outcome] = outcomes;
      assert(outcome !== undefined);
      return outcomeResult(outcome);
    });
  }

  /** A command that is refused with that code, and changes only its session's row. */
  refuse(code: ErrorCode, command: Command): void {
    const before = this.state();
    assert.throws(
      () => this.run(command),
      (error: unknown) => {
        assert(error instanceof ServiceError, String(error));
        assert.equal(error.code, code, error.message);
        return true;
      },
    );
    assert.deepEqual(this.state(), before, 'A refused command changes nothing');
  }

  query<Kind extends Query['kind']>(query: QueryOf<Kind> & { kind: Kind }): QueryResults[Kind] {
    return runQuery<Kind>(this.db, query);
  }

  refuseQuery(code: ErrorCode, query: Query): void {
    assert.throws(
      () => this.query(query),
      (error: unknown) => error instanceof ServiceError && error.code === code,
      JSON.stringify(query),
    );
  }

  at(path: string, follow = false): Attributes {
    return this.query({ kind: 'resolve', volume: 'main', path, follow }).attributes;
  }

  inode(inode: number): Attributes {
    return this.query({ kind: 'attributes', inode }).attributes;
  }

  names(path = '/'): string[] {
    const { entries } = this.query({
      kind: 'list',
      inode: this.at(path).inode,
      after: '',
      countMax: 1000,
    });
    return entries.map((entry) => entry.name);
  }

  file(path: string, mode = 0o644): Attributes {
    return this.run({ kind: 'create-file', place: main(path), mode, uid: 10, gid: 20, exclusive: true })
      .attributes;
  }

  directory(path: string, mode = 0o755): Attributes {
    return this.run({ kind: 'make-directory', place: main(path), mode, uid: 10, gid: 20 }).attributes;
  }

  symlink(path: string, target: string): Attributes {
    return this.run({ kind: 'symlink', place: main(path), target, uid: 10, gid: 20 }).attributes;
  }

  orphan(): Attributes {
    return this.run({ kind: 'create-orphan', volume: 'main', mode: 0o600, uid: 1, gid: 2 }).attributes;
  }

  /** The dump without the rows of sessions, and the clock of retentions. */
  state(): string[] {
    return [...dumpCatalog(this.db)].filter(
      (line) => !/^(sessions|timed_sessions|requests|counters|retention_clock) /.test(line),
    );
  }
}

/** A path on the volume that every fixture has. */
export function main(path: string): { volume: string; path: string } {
  return { volume: 'main', path };
}
