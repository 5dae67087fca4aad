import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { get as getSecure } from 'node:https';
import { get as getPlain } from '../../platform/node-http.ts';
import { systemWorld } from '../../world/system-world.ts';
import type { TlsOptions } from '../transport/access.ts';

/** @returns whether the server at `url` reports that it can serve; it need not run yet */
export async function answersReady(url: string, tls: TlsOptions, timeoutMs: number): Promise<boolean> {
  // A connection of its own: the server may be killed next.
  const options = { agent: false, signal: systemWorld.timeout(timeoutMs) } as const;
  const place = new URL('/readyz', url);
  const request =
    place.protocol === 'https:' ? getSecure(place, { ...options, ...tls }) : getPlain(place, options);
  try {
    const [answer] = (await once(request, 'response')) as [IncomingMessage];
    answer.resume();
    await once(answer, 'end');
    return answer.statusCode === 200;
  } catch (error) {
    // Not yet listening, or slow to answer: the caller polls.
    if (error instanceof Error) return false;
    throw error;
  }
}
