import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import type { FastifyInstance } from 'fastify';
import type { Timer, World } from '../../base/world.ts';

/** What is read as a whole before it is looked at, a few MiB at the most, is there within this time or not at all. */
const BODY_MS_MAX = 60_000;
/** Bodies of any length: they have a lowest rate instead. */
const STREAMS = /^\/v1\/(?:files|uploads)\b/;

/** Looks at a body in one window. */
const STEPS = 6;

export interface Pace {
  /** Over which the rate is measured. */
  readonly windowMs: number;
  readonly bytesPerS: number;
}

/** Slower than any line; a client that stops for less than a window is not cut off. */
const PACE: Pace = { windowMs: 30_000, bytesPerS: 1_024 };

/** Ends requests whose body drips in: each holds a connection, and memory or one of few slots. */
export function limitSlowBodies(
  app: FastifyInstance,
  world: World,
  bodyMsMax: number = BODY_MS_MAX,
  pace: Pace = PACE,
): void {
  app.addHook('onRequest', async ({ raw, headers, routeOptions }, reply) => {
    if (!hasBody(headers)) return;
    const isStream = STREAMS.test(routeOptions.url ?? '');
    const timer = isStream ? watchPace(world, raw, pace) : world.after(bodyMsMax, () => raw.destroy());
    // A client that was answered before its body was read is held to the limits of the connection.
    const clear = (): void => timer.cancel();
    raw.once('end', clear).once('close', clear);
    reply.raw.once('close', clear).once('finish', clear);
  });
}

export function hasBody(headers: IncomingHttpHeaders): boolean {
  return Number(headers['content-length'] ?? 0) > 0 || headers['transfer-encoding'] !== undefined;
}

/** Ends a request that brings fewer bytes in a window than its pace demands, while this server waits for them all that time. */
function watchPace(world: World, raw: IncomingMessage, { windowMs, bytesPerS }: Pace): Timer {
  const { socket } = raw;
  const stepMs = windowMs / STEPS;
  const bytesMin = (bytesPerS * windowMs) / 1_000;
  let begun = { steps: 0, bytes: socket.bytesRead };
  return world.every(stepMs, () => {
    const { bytesRead } = socket;
    begun.steps++;
    // What has come and is not read yet waits for this server, not for the client.
    if (raw.readableLength > 0 || bytesRead - begun.bytes >= bytesMin) begun = { steps: 0, bytes: bytesRead };
    if (begun.steps >= STEPS) raw.destroy();
  });
}
