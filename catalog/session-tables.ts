import type { Statements } from './statements.ts';

export interface SessionRow {
  readonly usedSeq: number;
  readonly highest: number;
}

/** The sessions of clients, and the outcomes that are remembered for each. Straight access, no rules. */
export class SessionTables {
  readonly #statements: Statements;

  constructor(statements: Statements) {
    this.#statements = statements;
  }

  row(id: number): SessionRow | undefined {
    return this.#statements.get<SessionRow>(
      'SELECT used_seq AS usedSeq, highest FROM sessions WHERE id = ?',
      id,
    );
  }

  /** @returns how many sessions there are now */
  insert(id: number, usedSeq: number, highest: number): number {
    this.#statements.run(
      'INSERT INTO sessions (id, used_seq, highest) VALUES (?, ?, ?)',
      id,
      usedSeq,
      highest,
    );
    return this.#statements.counter('UPDATE counters SET sessions = sessions + 1 RETURNING sessions');
  }

  use(id: number, usedSeq: number, highest: number): void {
    this.#statements.run('UPDATE sessions SET used_seq = ?, highest = ? WHERE id = ?', usedSeq, highest, id);
  }

  /** Forgets the sessions that were used last the longest time ago. */
  forget(count: number, spared: number): void {
    const oldest = this.#statements.all<{ id: number; usedSeq: number }>(
      'SELECT id, used_seq AS usedSeq FROM sessions WHERE id <> ? ORDER BY used_seq, id LIMIT ?',
      spared,
      count,
    );
    for (const { id, usedSeq } of oldest) {
      this.#statements.run('DELETE FROM requests WHERE session = ?', id);
      this.#statements.run('DELETE FROM sessions WHERE id = ?', id);
      this.#statements.run(
        'UPDATE counters SET sessions = sessions - 1, forgotten_seq = MAX(forgotten_seq, ?)',
        usedSeq,
      );
    }
  }

  forgottenSeq(): number {
    return this.#statements.counter('SELECT forgotten_seq FROM counters');
  }

  request(session: number, number: number): string | undefined {
    return this.#statements.get<{ outcome: string }>(
      'SELECT outcome FROM requests WHERE session = ? AND number = ?',
      session,
      number,
    )?.outcome;
  }

  putRequest(session: number, number: number, outcome: string): void {
    this.#statements.run(
      'INSERT INTO requests (session, number, outcome) VALUES (?, ?, ?)',
      session,
      number,
      outcome,
    );
  }

  forgetRequests(session: number, through: number): void {
    this.#statements.run('DELETE FROM requests WHERE session = ? AND number <= ?', session, through);
  }
}
