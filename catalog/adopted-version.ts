import type { Statements } from './statements.ts';
import {
  CATALOGS_VERSION,
  CREATIONS_VERSION,
  DELETIONS_VERSION,
  FLAGS_VERSION,
  SESSIONS_VERSION,
} from './versions.ts';

/** The version whose rules all catalog members apply; never falls. First 1, then `SESSIONS_VERSION` and later. */
export class AdoptedVersion {
  readonly #statements: Statements;

  constructor(statements: Statements) {
    this.#statements = statements;
  }

  get current(): number {
    return this.#statements.counter(
      `SELECT MAX(rules, CASE WHEN logged THEN ${DELETIONS_VERSION} WHEN flagged THEN ${FLAGS_VERSION}
         WHEN dated THEN ${CREATIONS_VERSION} WHEN fenced THEN ${SESSIONS_VERSION} ELSE 1 END)
       FROM counters`,
    );
  }

  adopt(version: number): void {
    if (version <= this.current) return;
    this.#statements.run(
      `UPDATE counters SET fenced = MAX(fenced, ?), dated = MAX(dated, ?), flagged = MAX(flagged, ?),
         logged = MAX(logged, ?), rules = MAX(rules, ?)`,
      ...[SESSIONS_VERSION, CREATIONS_VERSION, FLAGS_VERSION, DELETIONS_VERSION].map((rule) =>
        version >= rule ? 1 : 0,
      ),
      version >= CATALOGS_VERSION ? version : 0,
    );
  }
}
