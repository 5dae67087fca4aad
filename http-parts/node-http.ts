import type * as Http from 'node:http';
import { createRequire } from 'node:module';

/**
 * The used parts of `node:http`. An `import` reads every export, so that Node loads its `fetch` and WebSocket: a
 * seventh of a command's start (decision 0078). Types may be imported directly.
 */
const http = createRequire(import.meta.url)('node:http') as typeof Http;

export const { createServer, get, IncomingMessage, ServerResponse, STATUS_CODES } = http;
export type IncomingMessage = Http.IncomingMessage;
export type ServerResponse = Http.ServerResponse;
