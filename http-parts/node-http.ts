import type * as Http from 'node:http';
import { createRequire } from 'node:module';

/**
 * What is used of `node:http`. An `import` of it takes the value of every export, which has Node load its own `fetch` and
 * WebSocket: a seventh of the start of a command (decision 0078). Types may be imported from anywhere.
 */
const http = createRequire(import.meta.url)('node:http') as typeof Http;

export const { createServer, get, IncomingMessage, ServerResponse, STATUS_CODES } = http;
export type IncomingMessage = Http.IncomingMessage;
export type ServerResponse = Http.ServerResponse;
