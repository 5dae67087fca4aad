import { AsyncLocalStorage } from 'node:async_hooks';
import type { IncomingHttpHeaders } from 'node:http';
import type { World } from '../../base/world.ts';

/** W3C Trace Context: a request's id goes from server to server and into log lines. Servers keep and send no spans. */
export interface TraceContext {
  /** 32 hexadecimal digits, the same at all servers. */
  readonly traceId: string;
  /** 16 hexadecimal digits: the sender's span. */
  readonly parentId: string;
  /** This server's span. */
  readonly spanId: string;
  /** The trace is to be recorded. */
  readonly sampled: boolean;
  readonly state: string | null;
}

/** Version 00; of later ones, which may be longer, the same part is read. */
const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;
const STATE_CHARS_MAX = 512;
const SAMPLED = 1;

const current = new AsyncLocalStorage<TraceContext>();

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

export function withinTrace(trace: TraceContext, work: () => void): void {
  current.run(trace, work);
}

export function currentTrace(): TraceContext | null {
  return current.getStore() ?? null;
}

export function traceHeaders(): Record<string, string> {
  const trace = currentTrace();
  if (trace === null) return {};
  const { traceId, spanId, sampled, state } = trace;
  const traceparent = `00-${traceId}-${spanId}-${sampled ? '01' : '00'}`;
  return state === null ? { traceparent } : { traceparent, tracestate: state };
}

/** The trace's fields of each log line, with OpenTelemetry's names. */
export function traceFields(): Record<string, string> {
  const trace = currentTrace();
  return trace === null ? {} : { trace_id: trace.traceId, span_id: trace.spanId, parent_id: trace.parentId };
}
