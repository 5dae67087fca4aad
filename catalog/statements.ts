import type Database from 'better-sqlite3';
import { assert } from '../base/assert.ts';
import type { CatalogDatabase } from './schema.ts';

/** The statements of a handle, each prepared at its first use. */
export class Statements {
  readonly #db: CatalogDatabase;
  readonly #prepared = new Map<string, Database.Statement>();

  constructor(db: CatalogDatabase) {
    this.#db = db;
  }

  run(sql: string, ...values: readonly unknown[]): void {
    this.#statement(sql).run(...values);
  }

  // The compiler does not know a statement's result; tests check the row types.
  get<Row>(sql: string, ...values: readonly unknown[]): Row | undefined {
    return this.#statement(sql).get(...values) as Row | undefined;
  }

  all<Row>(sql: string, ...values: readonly unknown[]): Row[] {
    return this.#statement(sql).all(...values) as Row[];
  }

  /** Rows one by one: those that the caller does not take are not read. Until the end, nothing can be changed. */
  each<Row>(sql: string, ...values: readonly unknown[]): IterableIterator<Row> {
    return this.#statement(sql).iterate(...values) as IterableIterator<Row>;
  }

  /** @returns the single value of the single row */
  counter(sql: string, ...values: readonly (number | string)[]): number {
    const row = this.get<Record<string, number>>(sql, ...values);
    assert(row !== undefined, 'The row of counters exists');
    const [value] = Object.values(row);
    assert(value !== undefined, 'A counter has a value');
    return value;
  }

  #statement(sql: string): Database.Statement {
    let statement = this.#prepared.get(sql);
    if (statement === undefined) {
      statement = this.#db.prepare(sql);
      this.#prepared.set(sql, statement);
    }
    return statement;
  }
}
