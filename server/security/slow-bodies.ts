import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import type { FastifyInstance } from 'fastify';
import type { Timer, World } from '../../base/world.ts';

/** A body that is read as a whole, a few MiB at most, must arrive within this time. */
const BODY_MS_MAX = 60_000;
/** Bodies of any length have a minimum rate instead. */
const STREAMS = /^\/v1\/(?:files|uploads)\b/;

const CHECKS_PER_WINDOW = 6;

export interface Pace {
  readonly windowMs: number;
  readonly bytesPerS: number;
}

/** Slower than any usable line. A client that pauses for less than a window continues. */
const PACE: Pace = { windowMs: 30_000, bytesPerS: 1_024 };

/** Ends requests whose body arrives too slowly: each holds a connection, and memory or one of few slots. */
export function limitSlowBodies(
  app: FastifyInstance,
  world: World,
  isStream: (route: string) => boolean = (route) => STREAMS.test(route),
  bodyMsMax: number = BODY_MS_MAX,
  pace: Pace = PACE,
): void {
  app.addHook('onRequest', async ({ raw, headers, routeOptions }, reply) => {
    if (!hasBody(headers)) return;
    const timer = isStream(routeOptions.url ?? '')
      ? watchPace(world, raw, pace)
      : world.after(bodyMsMax, () => raw.destroy());
    // After the answer, the limits of the connection apply to an unread body.
    const clear = (): void => timer.cancel();
    raw.once('end', clear).once('close', clear);
    reply.raw.once('close', clear).once('finish', clear);
  });
}

export function hasBody(headers: IncomingHttpHeaders): boolean {
  return Number(headers['content-length'] ?? 0) > 0 || headers['transfer-encoding'] !== undefined;
}

/** Ends a request that sends too few bytes in a window in which this server waited for it all the time. */
function watchPace(world: World, raw: IncomingMessage, { windowMs, bytesPerS }: Pace): Timer {
  const { socket } = raw;
  const stepMs = windowMs / CHECKS_PER_WINDOW;
  const bytesMin = (bytesPerS * windowMs) / 1_000;
  let window = { steps: 0, bytes: socket.bytesRead };
  return world.every(stepMs, () => {
    const { bytesRead } = socket;
    window.steps++;
    // Bytes that have arrived and are unread wait for this server, not for the client.
    if (raw.readableLength > 0 || bytesRead - window.bytes >= bytesMin)
      window = { steps: 0, bytes: bytesRead };
    if (window.steps >= CHECKS_PER_WINDOW) raw.destroy();
  });
}
