import type { Statements } from './statements.ts';

export interface SessionRow {
  /** `fenced`: it named its start (`since`), and is refused once forgotten. `timed`: it named none; kept for 24 h. */
  readonly kind: 'fenced' | 'timed';
  /** Last use: seq of a fenced session, milliseconds (catalog clock) of a timed one. */
  readonly used: number;
  readonly highestNumber: number;
}

export class SessionTables {
  readonly #statements: Statements;

  constructor(statements: Statements) {
    this.#statements = statements;
  }

  row(id: number): SessionRow | undefined {
    const fenced = this.#statements.get<{ used: number; highestNumber: number }>(
      'SELECT used_seq AS used, highest AS highestNumber FROM sessions WHERE id = ?',
      id,
    );
    if (fenced !== undefined) return { kind: 'fenced', ...fenced };
    const timed = this.#statements.get<{ used: number; highestNumber: number }>(
      'SELECT used_ms AS used, highest AS highestNumber FROM timed_sessions WHERE id = ?',
      id,
    );
    return timed === undefined ? undefined : { kind: 'timed', ...timed };
  }

  /** @returns the number of fenced sessions */
  insertFenced(id: number, usedSeq: number, highestNumber: number): number {
    this.#statements.run(
      'INSERT INTO sessions (id, used_seq, highest) VALUES (?, ?, ?)',
      id,
      usedSeq,
      highestNumber,
    );
    return this.#statements.counter('UPDATE counters SET sessions = sessions + 1 RETURNING sessions');
  }

  insertTimed(id: number, usedMs: number, highestNumber: number): void {
    this.#statements.run(
      'INSERT INTO timed_sessions (id, used_ms, highest) VALUES (?, ?, ?)',
      id,
      usedMs,
      highestNumber,
    );
    this.#statements.run('UPDATE counters SET timed_sessions = timed_sessions + 1');
  }

  use(id: number, { kind, used, highestNumber }: SessionRow): void {
    const sql =
      kind === 'fenced'
        ? 'UPDATE sessions SET used_seq = ?, highest = ? WHERE id = ?'
        : 'UPDATE timed_sessions SET used_ms = ?, highest = ? WHERE id = ?';
    this.#statements.run(sql, used, highestNumber, id);
  }

  /** Forgets the `count` least recently used fenced sessions, but not `exceptId`. */
  forget(count: number, exceptId: number): void {
    const oldest = this.#statements.all<{ id: number; usedSeq: number }>(
      'SELECT id, used_seq AS usedSeq FROM sessions WHERE id <> ? ORDER BY used_seq, id LIMIT ?',
      exceptId,
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

  /** Forgets at most `count` timed sessions that were not used since `beforeMs`, the least recently used first. */
  forgetTimed(beforeMs: number, count: number): void {
    const oldest = this.#statements.all<{ id: number }>(
      'SELECT id FROM timed_sessions WHERE used_ms < ? ORDER BY used_ms, id LIMIT ?',
      beforeMs,
      count,
    );
    for (const { id } of oldest) {
      this.#statements.run('DELETE FROM requests WHERE session = ?', id);
      this.#statements.run('DELETE FROM timed_sessions WHERE id = ?', id);
      this.#statements.run('UPDATE counters SET timed_sessions = timed_sessions - 1');
    }
  }

  /** Number of timed sessions, and the oldest last use; null if none. */
  timed(): { readonly count: number; readonly oldestMs: number | null } {
    const count = this.#statements.counter('SELECT timed_sessions FROM counters');
    const oldest = this.#statements.get<{ oldestMs: number }>(
      'SELECT used_ms AS oldestMs FROM timed_sessions ORDER BY used_ms, id LIMIT 1',
    );
    return { count, oldestMs: oldest?.oldestMs ?? null };
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
