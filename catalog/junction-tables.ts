import type { Junction } from '../wire/catalog-api.ts';
import type { Statements } from './statements.ts';

/** Directories at which volumes may be attached. Plain access, no rules. */
export class JunctionTables {
  readonly #statements: Statements;

  constructor(statements: Statements) {
    this.#statements = statements;
  }

  row(inode: number): Junction | undefined {
    return this.#statements.get<Junction>('SELECT catalog, volume FROM junctions WHERE inode = ?', inode);
  }

  insert(inode: number, { catalog, volume }: Junction): void {
    this.#statements.run(
      'INSERT INTO junctions (inode, catalog, volume) VALUES (?, ?, ?)',
      ...[inode, catalog, volume],
    );
  }

  /** Whether more than one request to create it has returned it. */
  isShared(inode: number): boolean {
    const text = 'SELECT 1 FROM junctions WHERE inode = ? AND shared = 1';
    return this.#statements.get(text, inode) !== undefined;
  }

  share(inode: number): void {
    this.#statements.run('UPDATE junctions SET shared = 1 WHERE inode = ? AND shared = 0', inode);
  }

  delete(inode: number): void {
    this.#statements.run('DELETE FROM junctions WHERE inode = ?', inode);
  }
}
