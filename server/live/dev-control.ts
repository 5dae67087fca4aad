import type { LiveResync } from '../../wire/live-api.ts';

/** Set by `leasehold dev` and `demo` for the servers that they start: `URL#key`. */
export const CONTROL_VARIABLE = 'LEASEHOLD_DEV_CONTROL';

/** Returns where the parent process takes orders from the dashboard; null if it takes none. */
export function controlOf(environment: NodeJS.ProcessEnv): NonNullable<LiveResync['control']> | null {
  const text = environment[CONTROL_VARIABLE] ?? '';
  if (!URL.canParse(text)) return null;
  const { origin, hash } = new URL(text);
  return hash.length > 1 ? { url: origin, key: hash.slice(1) } : null;
}
