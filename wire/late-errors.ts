import { type Static, Type } from './schema.ts';

/** What a mount reports of an operation that it had acknowledged and that was dropped: `POST /v1/mounts/late-errors`. */
export const LateErrorReport = Type.Object({
  operation: Type.String({ pattern: '^[a-z-]{1,32}$' }),
  /** `VOLUME:/path`. */
  path: Type.String({ maxLength: 8_192 }),
  error: Type.String({ maxLength: 1_024 }),
});
export type LateErrorReport = Static<typeof LateErrorReport>;
