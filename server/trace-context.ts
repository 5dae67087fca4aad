import { AsyncLocalStorage } from 'node:async_hooks';
import type { IncomingHttpHeaders } from 'node:http';
import type { World } from '../base/world.ts';

/**
 * W3C Trace Context, as OpenTelemetry sends it: a request that is part of a trace carries its number from server to server, and what is
 * logged on the way names it. Servers keep no spans and send none: their logs say what they did, when, and for whom.
 */
export interface TraceContext {
  /** 32 hexadecimal digits, the same wherever the request goes. */
  readonly traceId: string;
  /** 16 of them: what the sender calls its part of the work. */
  readonly parentId: string;
  /** What this server calls its own part. */
  readonly spanId: string;
  /** Who began the trace wants to see it. */
  readonly sampled: boolean;
  /** What other tools added; passed on as it came. */
  readonly state: string | null;
}

/** Version 00; of later ones, which may be longer, the same part is read. */
const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;
const STATE_CHARS_MAX = 512;
const SAMPLED = 1;

const current = new AsyncLocalStorage<TraceContext>();

/** @returns the context that a request brings; null where it has none, or one that is malformed */
export function traceOf(headers: IncomingHttpHeaders, world: World): TraceContext | null {
  const { traceparent, tracestate } = headers;
  const match = typeof traceparent === 'string' ? TRACEPARENT.exec(traceparent) : null;
  if (match === null) return null;
  const [, version = '', traceId = '', parentId = '', flags = '', rest] = match;
  if (version === 'ff' || (version === '00' && rest !== undefined)) return null;
  if (/^0+$/.test(traceId) || /^0+$/.test(parentId)) return null;
  return {
    traceId,
    parentId,
    spanId: world.randomBytes(8).toString('hex'),
    sampled: (Number.parseInt(flags, 16) & SAMPLED) !== 0,
    state: typeof tracestate === 'string' && tracestate.length <= STATE_CHARS_MAX ? tracestate : null,
  };
}

/** Does `work`, and all that follows from it, as a part of the trace. */
export function withinTrace(trace: TraceContext, work: () => void): void {
  current.run(trace, work);
}

/** The trace that what runs now is a part of; null for none. */
export function currentTrace(): TraceContext | null {
  return current.getStore() ?? null;
}

/** @returns the headers with which a request goes on to another server */
export function traceHeaders(): Record<string, string> {
  const trace = currentTrace();
  if (trace === null) return {};
  const { traceId, spanId, sampled, state } = trace;
  const traceparent = `00-${traceId}-${spanId}-${sampled ? '01' : '00'}`;
  return state === null ? { traceparent } : { traceparent, tracestate: state };
}

/** What each line of the log says of the trace, by the names that OpenTelemetry has for logs. */
export function traceFields(): Record<string, string> {
  const trace = currentTrace();
  return trace === null ? {} : { trace_id: trace.traceId, span_id: trace.spanId, parent_id: trace.parentId };
}
