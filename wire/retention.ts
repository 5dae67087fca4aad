import { Nanoseconds } from './catalog-values.ts';
import { type Static, Type } from './schema.ts';

/** The longest retention, a century: times in nanoseconds have 64 bits. */
export const RETENTION_MS_MAX = 3_155_760_000_000;

/** Until when a file or snapshot is retained: a date, or a time from now on by the catalog's retention clock. */
export const Retention = Type.Union([
  Type.Object({ untilNs: Nanoseconds }),
  Type.Object({ forMs: Type.Integer({ minimum: 1, maximum: RETENTION_MS_MAX }) }),
]);
export type Retention = Static<typeof Retention>;
