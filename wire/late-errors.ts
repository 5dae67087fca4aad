import { type Static, Type } from './schema.ts';

/** A mount's report of an acknowledged operation that was dropped: `POST /v1/mounts/late-errors`. */
export const LateErrorReport = Type.Object({
  operation: Type.String({ pattern: '^[a-z-]{1,32}$' }),
  path: Type.String({ maxLength: 8_192 }),
  error: Type.String({ maxLength: 1_024 }),
});
export type LateErrorReport = Static<typeof LateErrorReport>;
